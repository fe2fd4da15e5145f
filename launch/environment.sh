# shellcheck shell=bash
# Sourced by the other scripts. `environment [EXTRA,...]`, called in the root of the repository, creates .venv, installs
# the dependencies if setup.cfg has changed, and puts .venv/bin on the path. PYTHON names the Python of a new .venv.
# Processes that start at the same time wait for each other. A .venv that the user has made is used, never removed.

# TensorFlow has no wheel for Python 3.14.
is_usable() { # PYTHON [MODULES]: returns whether it runs, is Python 3.11 to 3.13, and has the modules
  "$1" -c "import sys${2:-}; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))" </dev/null >/dev/null 2>&1
}

create() {
  local name names=(python3.13 python3.12 python3.11 python3 python) uv
  [ -z "${PYTHON:-}" ] || names=("$PYTHON")
  for name in "${names[@]}"; do
    ! is_usable "$name" ', ensurepip, venv' || { "$name" -m venv --clear .venv; return; }
  done
  if [ -n "${PYTHON:-}" ]; then
    echo "PYTHON=$PYTHON: does not run, is not 3.11 to 3.13, or has no venv" >&2
    return 2
  fi
  # TPU images have Python 3.10, Ubuntu 26.04 has 3.14. uv, from PyPI, installs another one without root.
  echo "no Python 3.11 to 3.13 with venv: installing 3.13 with uv"
  uv=$(mktemp -d)
  python3 -m pip install --quiet --target "$uv" --constraint constraints.txt uv </dev/null &&
    "$uv/bin/uv" venv --quiet --seed --clear --python 3.13 .venv
}

# Returns whether .venv can be installed into. One that was created here is not valid before its first installation has
# ended, or in another directory, because its programs contain its path.
is_valid() {
  is_usable .venv/bin/python || return
  [ ! -e .venv/created-in ] || { [ -e .venv/installed- ] && [ "$(cat .venv/created-in)" = "$(pwd -P)" ]; }
}

is_installed() { # MARK EXTRAS: returns whether these extras were installed with this mark
  [ -x .venv/bin/python ] && grep -qsxF "$1" ".venv/installed-$2"
}

pip() { # ARGUMENT ...
  .venv/bin/python -m pip --disable-pip-version-check --no-input "$@" </dev/null
}

# uv is ten times as fast as pip, but does not read pip's settings, such as that of an index.
install_by_uv() { # ARGUMENT ...
  ! pip config list | grep '[.]\(index-url\|no-index\)=' >/dev/null || return
  pip install --quiet --constraint constraints.txt uv || return
  # Bytecode is compiled now: where Python may not write it, every start of a process would compile it again for seconds.
  # PyTorch, of the extra `parity`: the build with CUDA has 3 GB, and its Triton crashes where TensorFlow is loaded.
  .venv/bin/python -m uv pip install --python .venv/bin/python --torch-backend cpu --compile-bytecode "$@" </dev/null
}

install() { # MARK EXTRAS
  local arguments=(--constraint constraints.txt)
  [ -t 1 ] || arguments+=(--quiet) # on a terminal, uv and pip show their progress
  arguments+=(--editable ".${2:+[$2]}")
  if is_valid; then
    pip --version >/dev/null 2>&1 || .venv/bin/python -m ensurepip >/dev/null || return # uv makes .venv without pip
  elif [ -n "$(ls -A .venv 2>/dev/null)" ] && [ ! -e .venv/created-in ]; then
    echo "$PWD/.venv: its Python does not run or is not 3.11 to 3.13; remove or rename .venv" >&2
    return 2
  else
    create && pwd -P >.venv/created-in || return
  fi
  echo "installing into .venv: once, up to a few minutes"
  # --use-pep517: the default of pip 25.3 and later; without it, older ones cannot build seqeval.
  install_by_uv "${arguments[@]}" || { echo "installing by pip"; pip install --use-pep517 "${arguments[@]}"; } || return
  tee ".venv/installed-$2" .venv/installed- <<<"$1" >/dev/null # it also has what is installed without extras
}

environment() {
  local mark identity='import sys; print(sys.version, sys.base_prefix)' # the same in the environments of a Python
  if [ -n "${PYTHON:-}" ] && [ -x .venv/bin/python ] &&
    [ "$("$PYTHON" -c "$identity" 2>/dev/null)" != "$(.venv/bin/python -c "$identity")" ]; then
    echo "$PWD/.venv: has another Python than PYTHON=$PYTHON; remove or rename .venv" >&2
    return 2
  fi
  mark=$({ pwd -P; cat setup.cfg pyproject.toml constraints.txt; } | cksum)
  if ! is_installed "$mark" "${1:-}"; then
    (
      ! command -v flock >/dev/null || flock 8 # macOS has none
      is_installed "$mark" "${1:-}" || install "$mark" "${1:-}"
    ) 8>>.venv.lock || return
  fi
  PATH="$PWD/.venv/bin:$PATH"
}
