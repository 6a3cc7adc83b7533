#!/usr/bin/env bash
# Finds, or makes, the Python that everything here runs on.
#
#   python=$(local/setup.sh [--dev])
#
# Standard output is one line, the path of the interpreter; what is being done goes to standard error.
#
# 1. The active interpreter ($PYTHON if set, else python3 or python on PATH) is used as it is where it
#    imports torch, k2, lhotse and mlvae; with --dev it must have what the tests need, too.
# 2. Else .venv, made with uv from requirements.lock, for Python 3.10. uv is brought into .setup/ where
#    there is none. A finished .venv is recognised by the file .venv/mlvae-setup, which holds a digest
#    of what it was made from. One that is out of date is replaced, and so is one that was
#    interrupted; one that this script did not make, or that somebody has added to, is moved aside.
#
# uv's own configuration holds. Of pip's, the package index, a folder of wheels (find-links) and
# no-index are handed on to uv, which does not read them itself.

[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # called as `sh local/setup.sh`
set -euo pipefail

# shellcheck source=local/environment.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
stamp=$venv/mlvae-setup
work=$root/.setup
active_record=$work/active
modules="torch k2 lhotse mlvae"

log() { echo "$(date '+%Y-%m-%d %H:%M:%S') set-up: $*" >&2; }

fail() {
  log "error: $*"
  exit 1
}

# Prints the absolute path of the command $1 if it is there and really runs: pyenv, for one, puts
# commands on PATH that only say that they are not installed.
working_command() {
  local path
  path=$(command -v -- "$1") || return 1
  [[ $path == /* ]] || path=$PWD/$path
  "$path" --version >/dev/null 2>&1 </dev/null || return 1
  echo "$path"
}

is_python310() {
  "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10))' >/dev/null 2>&1 </dev/null
}

active_python() {
  local name
  for name in ${PYTHON:+"$PYTHON"} python3 python; do
    working_command "$name" && return
  done
  return 1
}

# Prints what identifies the modules $2... of the interpreter $1; fails where one is missing. It looks
# without importing, which takes milliseconds where importing torch takes seconds. It runs in / so
# that the mlvae of the current folder does not count as installed.
installed_modules() {
  local python=$1
  shift
  (
    cd / && "$python" - "$@" <<'PROGRAM'
import importlib.util, os, sys
print(sys.executable, sys.version.split()[0])
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        sys.exit(1)
    print(name, spec.origin, os.stat(spec.origin).st_mtime_ns)
PROGRAM
  ) 2>/dev/null
}

# True where the interpreter $1 imports $modules. A success is remembered in .setup/active, together
# with what was imported, since the next run should not wait for it again.
imports_everything() {
  local python=$1 found error
  # shellcheck disable=SC2086  # one word a module
  found=$(installed_modules "$python" $modules) || return 1
  found="$python $found"
  if [[ -f $active_record && $(<"$active_record") == "$found" ]]; then
    return 0
  fi
  if ! error=$(cd / && "$python" -c "import ${modules// /, }" 2>&1 >/dev/null </dev/null); then
    log "$python has $modules, but importing them fails (${error##*$'\n'}); not using it"
    return 1
  fi
  { mkdir -p "$work" && echo "$found" >"$active_record.$$" && mv -f "$active_record.$$" "$active_record"; } \
    2>/dev/null || true # a folder that cannot be written costs time only
}

# The digest of all that .venv is made from. The folder counts, as .venv holds absolute paths.
digest() {
  { cat "$root/requirements.lock" "$root/pyproject.toml" && echo "$root"; } | sha256sum | cut -d ' ' -f 1
}

is_finished() {
  [[ -f $stamp && -x $venv/bin/python && $(<"$stamp") == "$(digest)" ]]
}

# Prints the path of uv: the one on PATH, or one brought into .setup/.
find_uv() {
  local uv python home
  for uv in uv "$work"/uv-*/venv/bin/uv "$work"/uv-*/target/bin/uv; do
    working_command "$uv" && return
  done
  python=$(active_python) || fail "there is no uv, and no python3 to bring it: install either, then run this again"
  log "bringing uv with $python"
  mkdir -p "$work"
  home=$(mktemp -d "$work/uv-XXXXXX")
  if "$python" -m venv "$home/venv" >"$home/log" 2>&1 </dev/null &&
    "$home/venv/bin/python" -m pip install uv >>"$home/log" 2>&1 </dev/null; then
    uv=$home/venv/bin/uv
  elif "$python" -m pip install --target "$home/target" uv >>"$home/log" 2>&1 </dev/null; then
    uv=$home/target/bin/uv
  else
    tail -n 5 "$home/log" >&2
    fail "$python could bring uv neither into an environment of its own (-m venv) nor with pip install" \
      "--target (all of it: $home/log); install uv, or python3-venv, then run this again"
  fi
  working_command "$uv" || fail "uv was installed as $uv but does not run"
}

# Prints a Python 3.10: on PATH, or in a pyenv installation, or the bare version for uv to find one.
find_python310() {
  local name path folder
  for name in ${PYTHON:+"$PYTHON"} python3.10 python3 python; do
    if path=$(working_command "$name") && is_python310 "$path"; then
      echo "$path"
      return
    fi
  done
  for folder in "${PYENV_ROOT:-/none}" "${HOME:-}/.pyenv"; do
    for path in "$folder"/versions/3.10*/bin/python3.10; do
      if [[ -x $path ]] && is_python310 "$path"; then
        echo "$path"
        return
      fi
    done
  done
  echo 3.10
}

# Prints pip's setting $1 (index-url, say), from its environment variable or its configuration files.
pip_setting() {
  local variable python
  variable=PIP_$(tr 'a-z-' 'A-Z_' <<<"$1")
  if [[ -n ${!variable:-} ]]; then
    echo "${!variable}"
  elif python=$(active_python); then
    "$python" -m pip config get "global.$1" 2>/dev/null </dev/null || true
  fi
}

hand_pip_settings_to_uv() {
  local value place places=""
  if [[ -z ${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-} ]]; then
    value=$(pip_setting index-url)
    [[ -z $value ]] || export UV_DEFAULT_INDEX=$value
  fi
  if [[ -z ${UV_FIND_LINKS:-} ]]; then
    value=$(pip_setting find-links)
    for place in $value; do # pip separates them by spaces and passes over missing folders; uv stops
      [[ $place != *://* && ! -e $place ]] || places+=${places:+,}$place
    done
    [[ -z $places ]] || export UV_FIND_LINKS=$places
  fi
  if [[ -z ${UV_NO_INDEX:-} ]]; then
    value=$(pip_setting no-index)
    [[ ! ${value,,} =~ ^(1|true|yes|on)$ ]] || export UV_NO_INDEX=1
  fi
}

# What PYTHONPATH brings for another Python would take the place of what .venv holds.
check_pythonpath() {
  local found name origin
  [[ -n ${PYTHONPATH:-} ]] || return 0
  found=$(installed_modules "$venv/bin/python" torch numpy k2 lhotse) || return 0
  while read -r name origin; do
    [[ " torch numpy k2 lhotse " != *" $name "* || $origin == "$venv"/* ]] ||
      fail "PYTHONPATH holds another $name than .venv (${origin% *}): unset it, PYTHONPATH=$PYTHONPATH"
  done <<<"$found"
}

# True where this script made all that is in .venv: nothing there is newer than the file that says so,
# but what Python compiles. (The time of the last change of a file's state, which copying sets, too.)
is_all_ours() {
  local newer
  [[ -f $stamp && ! -L $venv && ! -L $stamp ]] || return 1
  [[ $(<"$stamp") != unfinished ]] || return 0
  newer=$(find "$venv" -cnewer "$stamp" ! -type d ! -path "$stamp" ! -path '*/__pycache__/*' 2>&1) ||
    return 1
  [[ -z $newer ]]
}

make_venv() {
  local uv python system aside
  system=$(uname -s)-$(uname -m)
  [[ $system == Linux-x86_64 ]] || fail "requirements.lock is for Linux on x86-64, not $system; install" \
    "torch, the k2 made for it and 'pip install .' yourself, then run this with that python active"
  # Only what this script made is thrown away.
  if is_all_ours; then
    log "replacing .venv, which is unfinished or out of date"
    rm -rf "$venv"
  elif [[ -e $venv || -L $venv ]]; then
    aside=$work/venv-$(date +%Y%m%d-%H%M%S)-$$
    log "there is a .venv that this script did not make, only began, or that has been added to since;" \
      "moving it to $aside"
    mv "$venv" "$aside"
  fi
  hash -r
  uv=$(find_uv)
  python=$(find_python310)
  hand_pip_settings_to_uv
  export UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-300} # seconds; torch alone is 900 MB
  log "making .venv with $uv and Python $python; about 4 GB are installed, which takes a minute or more"
  if ! "$uv" venv --python "$python" "$venv" >&2 </dev/null; then
    [[ $python != 3.10 ]] || fail "no Python 3.10 is on PATH or in a pyenv folder, and uv could not bring one" \
      "(its message is above); install Python 3.10, or set PYTHON to one, then run this again"
    fail "uv could not make .venv with $python (its message is above)"
  fi
  echo unfinished >"$stamp"
  "$uv" pip install --python "$venv/bin/python" --require-hashes -r "$root/requirements.lock" >&2 </dev/null ||
    fail "uv could not install requirements.lock (its message is above); run the same command to try again"
  "$uv" pip install --python "$venv/bin/python" --no-deps --no-build-isolation -e "$root" >&2 </dev/null ||
    fail "uv could not install this package (its message is above)"
  (cd / && "$venv/bin/python" -c "import ${modules// /, }") >&2 </dev/null ||
    fail "everything is installed in .venv, but importing it fails (the message is above)"
  digest >"$stamp.new"
  mv "$stamp.new" "$stamp"
  log "finished"
}

main() {
  local python
  case "${1:-}" in
    --dev)
      modules+=" pytest xdist hypothesis ruff selenium"
      active_record+=-dev
      ;;
    "") ;;
    *) fail "unknown option $1 (there is only --dev)" ;;
  esac
  if [[ -n ${PYTHON:-} ]] && ! working_command "$PYTHON" >/dev/null; then
    fail "PYTHON=$PYTHON does not run"
  fi
  if python=$(active_python); then
    # An activated .venv of ours is not judged by its imports: it may be out of date.
    if ! [[ -f $stamp && $(dirname "$python") -ef $venv/bin ]]; then
      if imports_everything "$python"; then
        echo "$python"
        return
      fi
      if [[ -n ${PYTHON:-} ]]; then
        log "PYTHON=$PYTHON is not used: it must import ${modules// /, }"
      fi
    fi
  fi
  if ! is_finished; then
    mkdir -p "$work"
    exec 9>>"$work/lock"
    if command -v flock >/dev/null && ! flock -n 9; then
      log "waiting for another set-up to end"
      flock 9
    fi
    if ! is_finished; then # the other one may have done it
      make_venv
    fi
  fi
  check_pythonpath
  echo "$venv/bin/python"
}

# local/lock.sh reads the functions only.
if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  main "$@"
fi
