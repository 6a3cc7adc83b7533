#!/usr/bin/env bash
# Makes requirements.lock anew from pyproject.toml and the tested stack in requirements.in.
#
#   local/lock.sh [option of `uv pip compile` ...]
#
# Versions that are locked already stay unless --upgrade, or --upgrade-package NAME, is given. The
# file holds every extra, hashes, and no address of an index: it installs from whichever one is set.

[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # called as `sh local/lock.sh`
# shellcheck source=local/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/setup.sh"

# uv writes the hashes of every file of a release, also where requirements.in names one; only that one
# fits Python 3.10 (see there).
keep_named_k2_file() {
  local hash
  hash=$(sed -n 's/^k2==.*--hash=\(sha256:[0-9a-f]*\).*/\1/p' "$root/requirements.in")
  awk -v hash="$hash" '
    /^[^ #]/ { in_k2 = /^k2==/ }
    in_k2 && /--hash=/ {
      if (index($0, hash)) { found++; print "    --hash=" hash }
      next
    }
    { print }
    END { if (found != 1) exit 1 }'
}

cd "$root"
uv=$(find_uv)
hand_pip_settings_to_uv
new='' whole=''
trap 'rm -f "$new" "$whole"' EXIT # before there is anything to remove
new=$(mktemp requirements.lock.XXXXXX)
whole=$(mktemp requirements.lock.XXXXXX)
[[ ! -f requirements.lock ]] || grep -v '^#' requirements.lock >"$new"
# Relative names, so that no path of this machine gets into the comments of the file.
"$uv" pip compile pyproject.toml requirements.in --extra dev --output-file "$new" --quiet \
  --python "$(find_python310)" --python-version 3.10 --python-platform linux \
  --generate-hashes --no-header --no-emit-index-url --no-emit-find-links "$@" ||
  fail "uv could not find versions that fit pyproject.toml and requirements.in"
{
  echo "# For Python 3.10 on Linux x86-64, every extra included. Made by: make lock"
  keep_named_k2_file <"$new" || fail "the k2 file named in requirements.in is not on the index"
} >"$whole"
chmod --reference=requirements.in "$whole"
mv "$whole" requirements.lock
log "requirements.lock holds $(grep -c '^[^ #].*==' requirements.lock) packages"
