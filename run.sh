#!/usr/bin/env bash
# From a corpus to the table of how well mismatches were found, in seven stages:
#
#   0 prepare   recordings, and what is supposed to be said in each
#   1 fbank     features
#   2 units     the set of units and how frequent each is
#   3 align     forced alignment, trained from a flat start
#   4 train     ML-VAE
#   5 localize  where each unit lies and whether it was mispronounced
#   6 score     against the reference
#
# Without options it does all of them on synthetic speech. Each stage can be run by itself and again.

[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # called as `sh run.sh`
set -euo pipefail

# begin options
recipe=audiomnist   # a folder of recipes/
corpus=             # which corpus of the recipe (default: the recipe decides)
corpus_dir=         # folder of the corpus, for one that is on this machine already
num_utterances=     # how many utterances to build from the corpus (default: the recipe decides)
split=              # how training, validation and test are told apart (default: the recipe decides)
stage=0             # first stage to run
stop_stage=6        # last stage to run
config=small        # a file of recipes/RECIPE/conf, without .yaml (a recipe without that folder has those of recipes/own)
data_dir=data       # stages 0 to 2 write to DATA_DIR/CORPUS
exp_dir=exp         # stages 3 to 6 write to EXP_DIR/RECIPE/CORPUS/CONFIG
systems="ml-vae ml-vae-sub"  # systems to train and compare, of those that recipes/systems.yaml and CONFIG declare; recipe own: ml-vae-sub
utterance=          # test utterance in the plot of stage 6 (default: chosen by a rule)
w2v_checkpoint=     # weights of wav2vec 2.0 for w2v-ctc (default: those of torchaudio, if at hand)
device=auto         # auto, cpu or cuda
seed=0              # of everything random
allow_commands=false  # whether stage 1 runs shell commands that manifests name for audio files
allow_shared_recordings=false  # whether train, valid and test may have a recording in common
report=true         # whether stage 6 makes pages to see and hear the answers in a browser
shard=              # stage 1, 3 or 5 alone: one of n parts of its work, as in 3/8; see docs/scale.md
cache_mb=1000       # most memory, in MB, that stages 3 to 5 give to features which they have read
num_processes=1     # processes that share stages 1, 3, 4 and 5, each on a GPU of its own or on the CPU
# end options

root=$(dirname -- "$0")
[[ ! -L $0 ]] || root=$(dirname -- "$(readlink -f -- "$0")")
# shellcheck source=local/environment.sh
source "$root/local/environment.sh"
# shellcheck source=local/recipe_options.sh
source "$root/local/recipe_options.sh"
# shellcheck source=local/parse_options.sh
source "$root/local/parse_options.sh"

log() { echo "$(date '+%Y-%m-%d %H:%M:%S') $*"; }

for option in stage stop_stage; do
  [[ ${!option} =~ ^[0-6]$ ]] || usage_error "--${option//_/-} must be a number from 0 to 6, not '${!option}'"
done
((stage <= stop_stage)) || usage_error "--stage $stage is after --stop-stage $stop_stage"
[[ $recipe =~ ^[A-Za-z0-9._-]+$ && -f $root/recipes/$recipe/prepare.py ]] ||
  usage_error "there is no recipe '$recipe' (found: $(names_in "$root/recipes" /prepare.py))"
conf_dir=$root/recipes/$recipe/conf
[[ -d $conf_dir ]] || conf_dir=$root/recipes/own/conf
conf=$conf_dir/$config.yaml
[[ $config =~ ^[A-Za-z0-9._-]+$ && -f $conf ]] ||
  usage_error "there is no config '$config' (found: $(names_in "$conf_dir" .yaml))"
[[ -z $corpus || $corpus =~ ^[A-Za-z0-9_][A-Za-z0-9._-]*$ ]] ||
  usage_error "--corpus '$corpus' is no name for a folder"
[[ ! -e $corpus_dir || -d $corpus_dir || $corpus_may_be_file == true ]] ||
  usage_error "--corpus-dir $corpus_dir is not a folder"
[[ -z $num_utterances || $num_utterances =~ ^[1-9][0-9]{0,8}$ ]] ||
  usage_error "--num-utterances must be a positive number of at most 9 digits, not '$num_utterances'"
[[ $device =~ ^(auto|cpu|cuda)$ ]] || usage_error "--device must be auto, cpu or cuda, not '$device'"
[[ $num_processes =~ ^[1-9][0-9]{0,2}$ ]] ||
  usage_error "--num-processes must be a positive number of at most 3 digits, not '$num_processes'"
[[ -z $shard || $shard =~ ^[1-9][0-9]*/[1-9][0-9]*$ ]] ||
  usage_error "--shard must be i/n, as in 3/8, not '$shard'"
[[ -z $shard || ($stage == "$stop_stage" && $stage =~ ^[135]$) ]] ||
  usage_error "--shard goes with stage 1, 3 or 5 alone: --stage 5 --stop-stage 5"
[[ $cache_mb =~ ^[0-9]{1,7}$ ]] ||
  usage_error "--cache-mb must be a whole number of at most 7 digits, not '$cache_mb'"
[[ $seed =~ ^(0|[1-9][0-9]{0,17})$ ]] ||
  usage_error "--seed must be a whole number of at most 18 digits, not '$seed'"
for option in allow_commands allow_shared_recordings report; do
  [[ ${!option} =~ ^(true|false)$ ]] ||
    usage_error "--${option//_/-} must be true or false, not '${!option}'"
done
[[ -z $w2v_checkpoint || -f $w2v_checkpoint ]] ||
  usage_error "--w2v-checkpoint $w2v_checkpoint is not a file"
[[ -n $data_dir && -n $exp_dir ]] || usage_error "--data-dir and --exp-dir must not be empty"
check_recipe_options
[[ -n $corpus ]] || usage_error "recipe $recipe has no default corpus: say which with --corpus"

python=$(bash "$root/local/setup.sh")
# The programs of this checkout go with the package of this checkout, whichever is installed.
PYTHONPATH=$(cd "$root" && pwd)${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
# glibc keeps what is freed for what is needed next. Otherwise it may give memory back between two
# E-steps, and get it again page by page.
export MALLOC_MMAP_THRESHOLD_=${MALLOC_MMAP_THRESHOLD_:-33554432}
export MALLOC_TRIM_THRESHOLD_=${MALLOC_TRIM_THRESHOLD_:-1073741824}
# OpenMP's threads sleep when they have waited for a moment. Otherwise they spin, and beside another
# busy program each waits for a core that another one spins on (benchmarks/busy.py).
if [[ -z ${OMP_WAIT_POLICY:-} ]]; then
  export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000}
fi

data=$data_dir/${corpus_name:-$corpus}
exp=$exp_dir/$recipe/${corpus_name:-$corpus}/$config

# How stages are started by several processes. (The port is free, not the fixed one of --standalone
# of torch 1.13, so that two trainings on one machine do not meet.)
together=(-m torch.distributed.run --rdzv_backend c10d --rdzv_endpoint localhost:0
  --nnodes 1 --nproc_per_node "$num_processes")

# run_stage NUMBER NAME PROGRAM [OPTION ...]: if its turn has come, with a line before and after.
run_stage() {
  local number=$1 name=$2 program=$3 began=$SECONDS status=0
  shift 3
  ((stage <= number && number <= stop_stage)) || return 0
  log "stage $number $name: start"
  if ((num_processes > 1)) && [[ $number =~ ^[1345]$ && -z $shard ]]; then
    "$python" "${together[@]}" "$root/$program" "$@" || status=$?
  else
    "$python" "$root/$program" "$@" || status=$?
  fi
  if ((status)); then
    log "stage $number $name: failed after $((SECONDS - began)) s (exit status $status)" >&2
    exit "$status"
  fi
  log "stage $number $name: end, $((SECONDS - began)) s"
}

model_options=(--data-dir "$data" --exp-dir "$exp" --config "$conf" --device "$device" --seed "$seed"
  --cache-mb "$cache_mb")
system_options=("${model_options[@]}" --systems "$systems")
fbank_options=(--data-dir "$data")
score_options=()
[[ $report == true ]] || score_options+=(--report false)
[[ $allow_commands == false ]] || fbank_options+=(--allow-commands true)
[[ $allow_shared_recordings == false ]] || fbank_options+=(--allow-shared-recordings true)

# A mistake in a name must not be found out after hours.
"$python" "$root/local/check.py" --config "$conf" --systems "$systems" || exit

run_stage 0 prepare "recipes/$recipe/prepare.py" --corpus "$corpus" --data-dir "$data" --seed "$seed" \
  ${corpus_dir:+--corpus-dir "$corpus_dir"} ${split:+--split "$split"} \
  ${num_utterances:+--num-utterances "$num_utterances"} ${prepare_options[@]+"${prepare_options[@]}"}
run_stage 1 fbank local/fbank.py "${fbank_options[@]}" ${shard:+--shard "$shard"}
run_stage 2 units local/units.py --data-dir "$data" ${units_options[@]+"${units_options[@]}"} \
  ${init_options[@]+"${init_options[@]}"}
run_stage 3 align local/align.py "${model_options[@]}" ${init_options[@]+"${init_options[@]}"} \
  ${shard:+--shard "$shard"}
run_stage 4 train local/train.py --num-processes "$num_processes" "${system_options[@]}" \
  ${init_options[@]+"${init_options[@]}"} ${w2v_checkpoint:+--w2v-checkpoint "$w2v_checkpoint"}
run_stage 5 localize local/localize.py "${system_options[@]}" ${shard:+--shard "$shard"}
run_stage 6 score local/score.py --data-dir "$data" --exp-dir "$exp" --config "$conf" --seed "$seed" \
  ${utterance:+--utterance "$utterance"} ${score_options[@]+"${score_options[@]}"}
