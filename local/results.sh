# shellcheck shell=bash
# What the results.sh of every recipe needs. To be sourced after local/parse_options.sh by a script
# that has set
#
#   given             its arguments, an array
#   here, root        its folder, and that of the project
#   known_parts       the parts it has, in their order
#   corpus_in_words   how a person would write the folder of the corpus
#
# and has the options corpus_dir, parts, data_dir, exp_dir, device, company and out. Sets `python`,
# which has the extra dev, `records`, the folder of what parts leave, and `out`.
#
# shellcheck disable=SC2154  # the variables are the script's

wants() { [[ " $parts " == *" $1 "* ]]; }

log() { echo "$(date '+%Y-%m-%d %H:%M:%S') $*"; }

for part in $parts; do
  [[ " $known_parts " == *" $part "* ]] ||
    usage_error "there is no part '$part' (there are: $known_parts)"
done
[[ -z $corpus_dir || -d $corpus_dir ]] || usage_error "--corpus-dir $corpus_dir is not a folder"
[[ -n $data_dir && -n $exp_dir ]] || usage_error "--data-dir and --exp-dir must not be empty"
out=${out:-$here/RESULTS.md}
check_out='
import sys
from pathlib import Path
from mlvae.report.results import check_place
from mlvae.stage import in_one_line
sys.exit(in_one_line("results.sh", lambda: check_place(Path(sys.argv[1])) and 0))'

# The benchmarks and the composer need the extra dev.
python=$(bash "$root/local/setup.sh" --dev)
if wants compose && ! "$python" -c 'import jinja2' 2>/dev/null; then
  # Better now than after hours.
  log "results: $python has no jinja2, which part compose needs (extra dev)" >&2
  exit 1
fi
if wants compose && ! PYTHONPATH=$root "$python" -c "$check_out" "$out" >/dev/null; then
  exit 1
fi
export PYTHON=$python PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
records=$exp_dir/results
mkdir -p "$records"
unfinished=$(mktemp -d "$records/.unfinished-XXXXXX")
trap 'rm -rf "$unfinished"' EXIT

# in_words WORD ...: the command as a person would type it, whichever folders are used here.
in_words() {
  local word line=""
  for word in "$@"; do
    case $word in
      "$root/run.sh") word=./run.sh ;;
      "$python") word=python ;;
      "$root"/*) word=${word#"$root"/} ;;
      "${corpus_dir:-/nowhere}") word=$corpus_in_words ;;
      "${w2v_checkpoint:-/nowhere}") word=/path/to/wav2vec2 ;;
      "$data_dir" | "$data_dir"/*) word=data${word#"$data_dir"} ;;
      "$exp_dir" | "$exp_dir"/*) word=exp${word#"$exp_dir"} ;;
    esac
    [[ $word =~ ^[A-Za-z0-9_./:=+-]+$ ]] || word=\"$word\"
    line+=${line:+ }$word
  done
  # What is the default anyway is left out.
  line=${line/ --data-dir data --/ --}
  line=${line/ --exp-dir exp --/ --}
  echo "${line/ --device auto/}"
}

# Where a part ran, with how many threads where that was set, and beside what.
machine_and_company() {
  local line
  line=$("$python" -c 'from mlvae.report.machine import machine_line as m; print(m())')
  echo "$line${OMP_NUM_THREADS:+; OMP_NUM_THREADS=$OMP_NUM_THREADS}${company:+; $company}"
}

# What a part leaves in $records besides its record NAME.txt, which has their checksums.
left_by() {
  local path
  for path in "$records/$1-table.txt" "$records/$1.json"; do
    [[ ! -e $path && ! -L $path ]] || echo "$path"
  done
}

checksum() {
  local digest
  digest=$(sha256sum <"$1")
  echo "${digest%% *}"
}

# What was not made here, or was changed since, is not replaced.
check_place() {
  local name=$1 path
  while IFS= read -r path; do
    [[ ! -f $path || -L $path || ! -f $records/$name.txt ]] ||
      ! grep -qxF "made: ${path##*/} $(checksum "$path")" "$records/$name.txt" || continue
    log "results $name: $path is in the way: not made here, or changed since; move it elsewhere" >&2
    exit 1
  done < <(left_by "$name")
  path=$records/$name.txt
  [[ ! -e $path && ! -L $path ]] || { [[ -f $path && ! -L $path ]] && grep -q '^command: ' "$path"; } || {
    log "results $name: $path is in the way: not made here; move it elsewhere" >&2
    exit 1
  }
}

# run_part NAME OUTPUT COMMAND ...: unless it is done. OUTPUT: a file for what it prints, or -.
run_part() {
  local name=$1 output=$2 began=$SECONDS words
  shift 2
  words=$(in_words "$@")
  if [[ -f $records/$name.txt && $(sed -n 's/^command: //p' "$records/$name.txt") == "$words" ]]; then
    log "results $name: done before"
    return
  fi
  check_place "$name"
  log "results $name: $words"
  if [[ $output == - ]]; then
    "$@"
  else
    "$@" >"$unfinished/output"
    mv "$unfinished/output" "$output"
  fi
  {
    echo "command: $words"
    echo "seconds: $((SECONDS - began))"
    echo "machine: $(machine_and_company)"
    echo "commit: $(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)"
    left_by "$name" | while IFS= read -r path; do
      echo "made: ${path##*/} $(checksum "$path")"
    done
  } >"$unfinished/record"
  mv "$unfinished/record" "$records/$name.txt"
  log "results $name: end, $((SECONDS - began)) s"
}

# What was asked for, without what says where files lie and which parts to do this time.
whole_command() {
  local words=() index=0 word
  while ((index < ${#given[@]})); do
    word=${given[index]}
    if [[ $word =~ ^--(parts|out|company|data-dir|exp-dir|data_dir|exp_dir)(=|$) ]]; then
      [[ $word == *=* ]] || index=$((index + 1))
    else
      words+=("$word")
    fi
    index=$((index + 1))
  done
  in_words "$here/results.sh" ${words[@]+"${words[@]}"}
}
