# shellcheck shell=bash
# Sourced by the other scripts. `environment [EXTRA,...]`, called in the root of the repository, makes .venv, installs
# what setup.cfg asks for where that has changed, and puts .venv/bin on the path. PYTHON names the Python to use.

is_usable() { # PYTHON: does it run, is it new enough, and can it make an environment?
  "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' </dev/null >/dev/null 2>&1
}

find_python() {
  local name names=(python3.12 python3.11 python3 python) # first those that constraints.txt was tested with
  [ -z "${PYTHON:-}" ] || names=("$PYTHON")
  for name in "${names[@]}"; do
    is_usable "$name" && echo "$name" && return
  done
  return 1
}

# Images of TPUs carry Python 3.10. uv, from PyPI, brings another as a plain directory: it needs no root.
make_environment() {
  local python uv
  if python=$(find_python); then
    "$python" -m venv --clear .venv
  elif [ -n "${PYTHON:-}" ]; then
    echo "PYTHON=$PYTHON: does not run, is older than 3.11, or has no venv" >&2
    return 2
  else
    echo "no Python 3.11 or newer, with venv: uv brings 3.12"
    uv=$(mktemp -d)
    python3 -m pip install --quiet --target "$uv" --constraint constraints.txt uv </dev/null &&
      "$uv/bin/uv" venv --quiet --seed --clear --python 3.12 .venv
  fi
}

is_installed() { # MARK [EXTRA,...]: was all of that installed with this mark?
  local extra
  for extra in '' ${2//,/ }; do
    grep -qsxF "$1" ".venv/installed-$extra" || return
  done
}

environment() {
  local extras=${1:-} extra mark quiet=--quiet
  [ ! -t 1 ] || quiet= # on a terminal, pip shows what it downloads
  # The directory too: the programs of an environment hold its path.
  mark=$({ echo "$PWD"; cat setup.cfg pyproject.toml constraints.txt; } | cksum)
  if ! is_installed "$mark" "$extras"; then
    # One that was never finished is made anew.
    if ! [ -e .venv/installed- ] || ! is_usable .venv/bin/python; then
      make_environment || return
    fi
    echo "installing into .venv: once, a few minutes"
    .venv/bin/python -m pip install --disable-pip-version-check --no-input $quiet \
      --constraint constraints.txt --editable ".${extras:+[$extras]}" </dev/null || return
    # What has an extra has the rest, too.
    for extra in '' ${extras//,/ }; do
      echo "$mark" >".venv/installed-$extra"
    done
  fi
  PATH="$PWD/.venv/bin:$PATH"
}
