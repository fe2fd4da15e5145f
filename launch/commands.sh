# shellcheck shell=bash
# Sourced by the scripts that start runs elsewhere: options, commands that are told before they run, this checkout.

# shellcheck source=launch/run.sh
source "$(dirname "${BASH_SOURCE[0]}")/run.sh"

leave_out=(':!tests') # of what is copied elsewhere
dry= # with --dry-run commands are printed, ready to be pasted, and none is run

wrong() { # REASON: the user's, before anything is done
  echo "${0##*/}: $*" >&2
  exit 2
}

say() { echo "${0##*/}: $*" >&2; }

value() { # OPTION [VALUE]: is there one?
  case "${2:-}" in '' | --*) wrong "$1: needs a value" ;; esac
}

needs() { # PROGRAM HINT
  [ -n "$dry" ] || command -v "$1" >/dev/null || wrong "$1: not installed${2:+ ($2)}"
}

quoted() { # WORD...: a line that any shell reads as these words
  local word rest before=''
  for word; do
    case "$word" in
      '' | *[!A-Za-z0-9_./:=,@%+-]*)
        rest=$word word="'"
        while [ "$rest" != "${rest#*\'}" ]; do
          word+=${rest%%\'*}"'\\''"
          rest=${rest#*\'}
        done
        word+="$rest'"
        ;;
    esac
    printf '%s%s' "$before" "$word"
    before=' '
  done
}

heed() { # [CODE]: ends this script, with the code of its command, where it was told to end meanwhile
  [ -z "$told" ] || exit "$((${1:-0} > 0 ? $1 : 130))"
}

call() { # COMMAND...: tells it, and runs it
  if [ -n "$dry" ]; then
    quoted "$@"
    echo
    return
  fi
  echo "+ $(quoted "$@")" >&2
  quietly "$@"
}

execute() { # COMMAND...: instead of this script
  if [ -n "$dry" ]; then
    call "$@"
  else
    exec "$@"
  fi
}

quietly() { # COMMAND...: without telling it
  local code=0
  run "$@" </dev/null || code=$?
  heed "$code"
  return "$code"
}

prepare() { # [EXTRA,...]: .venv, in the root of the repository
  if [ -n "$dry" ]; then
    echo "cd $(quoted "$PWD") && source launch/environment.sh && environment '$1'"
    return
  fi
  source launch/environment.sh
  environment "$1"
}

nap() { quietly sleep "$1" || true; }

longer() { # SECONDS MOST: twice as long, but for that
  echo "$(($1 * 2 < $2 ? $1 * 2 : $2))"
}

has() { # WORD ARGUMENT...: is it among them, alone or as WORD=...?
  local word=$1 argument
  shift
  for argument; do
    case "$argument" in "$word" | "$word"=*) return ;; esac
  done
  return 1
}

argument() { # WORD ARGUMENT...: what follows it, or nothing
  local word=$1 before='' argument
  shift
  for argument; do
    case "$argument" in "$word"=*) echo "${argument#*=}" && return ;; esac
    [ "$before" != "$word" ] || { echo "$argument" && return; }
    before=$argument
  done
}

sources() { # the files of this checkout, as they are now, but for those left out; each ends with a zero byte
  local file
  git ls-files -z --cached --others --exclude-standard -- . "${leave_out[@]}" | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
  done
}

regular() { # those of them that are neither links, which are copied as they are, nor directories of other repositories
  local file
  sources | while IFS= read -r -d '' file; do
    [ -L "$file" ] || [ ! -f "$file" ] || printf '%s\0' "$file"
  done
}

MOST=200 # MB of files that are copied, at most

check_sources() { # ARGUMENT...: can workers that have these files, and nothing else of this machine, read what it names?
  local key file size
  git rev-parse --is-inside-work-tree >/dev/null 2>&1 || wrong "$PWD: not a checkout of git, whose files are copied"
  for key in --config --config.tokenizer.path; do
    file=$(argument "$key" "$@")
    case "$key=$file" in *://*) continue ;; --config=*.py | --config.tokenizer.path=?*) ;; *) continue ;; esac
    # Not grep -q, which would end what it reads from.
    sources | grep -Fxz -- "${file#./}" >/dev/null || wrong "$key $file: not among the files of $PWD, which are what is copied"
    # A link is copied as it is: what it leads to has to be copied, too.
    [ ! -L "$file" ] || sources | grep -Fxz -- "$(realpath --relative-to=. -- "$file")" >/dev/null ||
      wrong "$key $file: a link to what is not among the files of $PWD, which are what is copied"
  done
  size=$(regular | xargs -0 wc -c -- | awk '$2 != "total" { size += $1 } END { print int(size / 1000000) }')
  [ "$size" -le "$MOST" ] ||
    wrong "$PWD: $size MB of files would be copied to every worker, $MOST at most; .gitignore names what is not"
}
