# shellcheck shell=bash
# Sourced by the other scripts. `environment [EXTRA,...] [WHEEL]`, called in the root of the repository, makes .venv,
# installs what setup.cfg asks for where that has changed, and puts .venv/bin on the path. WHEEL, a file or what else
# pip takes, is installed instead of this checkout.

fits() { # Does this Python run, and is it new enough? Some names on a path only print an error.
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null >/dev/null 2>&1
}

identity() { # of the installation behind a Python, the same inside and outside of an environment
  "$1" -c 'import sys; print(sys.base_prefix, sys.version)' </dev/null
}

find_python() {
  if [ -n "${PYTHON:-}" ]; then
    fits "$PYTHON" && echo "$PYTHON" && return
    echo "PYTHON=$PYTHON: does not run, or is older than 3.11" >&2
    return 2
  fi
  local name
  # First the versions that constraints.txt was tested with.
  for name in python3.12 python3.11 python3 python; do
    fits "$name" && echo "$name" && return
  done
  echo "no Python 3.11 or newer found; install one, or name it: PYTHON=/path/to/python bash $0" >&2
  return 2
}

make_environment() {
  local python
  python=$(find_python) || return
  echo "making .venv with $python"
  # --clear, because what is there is broken, half made or of another Python.
  "$python" -m venv --clear .venv && return
  echo "$python cannot make an environment (on Debian and Ubuntu: apt install python3-venv)" >&2
  return 1
}

fits_already() { # Is .venv whole, and of the Python that the user names, if any?
  [ -e .venv/whole ] && fits .venv/bin/python || return
  [ -z "${PYTHON:-}" ] || [ "$(identity "$PYTHON")" = "$(identity .venv/bin/python)" ]
}

fingerprint() { # [WHEEL]: of all that decides what is installed; of the root, whose path .venv/bin holds
  .venv/bin/python - setup.cfg pyproject.toml constraints.txt ${1:+"$1"} <<'EOF'
import hashlib, os, sys

files = [open(name, "rb").read().decode("latin-1") if os.path.exists(name) else name for name in sys.argv[1:]]
parts = [os.getcwd(), sys.base_prefix, sys.version, *files]
print(hashlib.sha256("\0".join(parts).encode()).hexdigest())
EOF
}

installed() { # MARK [EXTRA,...]: was all of that installed with this mark?
  local extra
  for extra in '' ${2//,/ }; do
    grep -qsx "$1" ".venv/installed-$extra" || return
  done
}

environment() {
  local extras=${1:-} wheel=${2:-} extra quiet=--quiet mark what=()
  [ ! -t 1 ] || quiet= # on a terminal, pip shows what it downloads
  if [ -n "${PYTHON:-}" ]; then
    find_python >/dev/null || return # a wrong PYTHON is said, whether or not it is needed
  fi
  if ! fits_already; then
    make_environment || return
    touch .venv/whole
  fi
  mark=$(fingerprint "$wheel") || return
  if ! installed "$mark" "$extras"; then
    case "$wheel" in
      '') what=(--editable ".${extras:+[$extras]}") ;;
      *.whl) what=(--force-reinstall "$wheel${extras:+[$extras]}") ;;
      *) what=("$wheel") ;; # which names its extras itself
    esac
    echo "installing into .venv: once, a few minutes"
    .venv/bin/python -m pip install --disable-pip-version-check --no-input $quiet \
      --constraint constraints.txt "${what[@]}" </dev/null || return
    # Last, so that a broken installation is tried again. What has an extra has the rest, too.
    for extra in '' ${extras//,/ }; do
      echo "$mark" >".venv/installed-$extra"
    done
  fi
  PATH="$PWD/.venv/bin:$PATH"
}
