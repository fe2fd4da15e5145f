# shellcheck shell=bash
# Sourced by the other scripts. `environment [EXTRA,...]`, called in the root of the repository, creates .venv, installs
# the dependencies if setup.cfg has changed, and puts .venv/bin on the path. PYTHON names the Python to use.

is_usable() { # PYTHON: returns whether it runs, is new enough, and can create an environment
  "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' </dev/null >/dev/null 2>&1
}

find_python() {
  local name names=(python3.12 python3.11 python3 python) # constraints.txt was tested with the first two
  [ -z "${PYTHON:-}" ] || names=("$PYTHON")
  for name in "${names[@]}"; do
    is_usable "$name" && echo "$name" && return
  done
  return 1
}

# TPU images have Python 3.10. uv, from PyPI, installs another one into a directory, without root.
make_environment() {
  local python uv
  if python=$(find_python); then
    "$python" -m venv --clear .venv
  elif [ -n "${PYTHON:-}" ]; then
    echo "PYTHON=$PYTHON: does not run, is older than 3.11, or has no venv" >&2
    return 2
  else
    echo "no Python 3.11 or newer with venv: installing 3.12 with uv"
    uv=$(mktemp -d)
    python3 -m pip install --quiet --target "$uv" --constraint constraints.txt uv </dev/null &&
      "$uv/bin/uv" venv --quiet --seed --clear --python 3.12 .venv
  fi
}

is_installed() { # MARK [EXTRA,...]: returns whether all extras were installed with this mark
  local extra
  for extra in '' ${2//,/ }; do
    grep -qsxF "$1" ".venv/installed-$extra" || return
  done
}

environment() {
  local extras=${1:-} extra mark quiet=--quiet
  [ ! -t 1 ] || quiet= # on a terminal, pip shows its progress
  # The mark includes the directory, because the programs of an environment contain its path.
  mark=$({ echo "$PWD"; cat setup.cfg pyproject.toml constraints.txt; } | cksum)
  if ! is_installed "$mark" "$extras"; then
    # An incomplete environment is created again.
    if ! [ -e .venv/installed- ] || ! is_usable .venv/bin/python; then
      make_environment || return
    fi
    echo "installing into .venv: once, a few minutes"
    # --use-pep517: the default of pip 25.3 and later; without it, older ones cannot build seqeval.
    .venv/bin/python -m pip install --disable-pip-version-check --no-input --use-pep517 $quiet \
      --constraint constraints.txt --editable ".${extras:+[$extras]}" </dev/null || return
    # An environment with an extra also has the base.
    for extra in '' ${extras//,/ }; do
      echo "$mark" >".venv/installed-$extra"
    done
  fi
  PATH="$PWD/.venv/bin:$PATH"
}
