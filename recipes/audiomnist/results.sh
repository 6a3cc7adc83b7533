#!/usr/bin/env bash
# Makes RESULTS.md of this recipe from nothing. Its parts, in this order:
#
#   fsdd         all systems on spoken digits, seed 0
#   seeds        ML-VAE and ML-VAE-RL with further seeds on the same data, and their difference
#   correctness  what q(pi) of these two says in right and in wrong units, and why
#   speaker      a speaker that is test altogether
#   variants     ML-VAE-sub in further configurations
#   espeak       run.sh as it is without options: synthetic speech
#   estep        what an E-step costs
#   competitors  what competitors cost in it
#   length       what a recording costs by its length
#   compose      RESULTS.md out of what the others left
#
# A part leaves a record in EXP_DIR/results when it is done. It is not done again while its record is
# there and of the same command; to do all again, remove that folder (trained models are gone on from
# unless their folders are removed, too). A part that was interrupted goes on where it was.

[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # called as `sh recipes/audiomnist/results.sh`
set -euo pipefail

# begin options
corpus_dir=           # folder of FSDD (default: it is downloaded)
parts="fsdd seeds correctness speaker variants espeak estep competitors length compose"  # those to do
num_utterances=3000   # to build from FSDD
config=small          # a file of conf, without .yaml
systems="fa two-pass-fa w2v-ctc ml-vae ml-vae-rl ablation-1 ablation-2 ablation-3 ml-vae-sub"  # of part fsdd
w2v_checkpoint=       # weights of wav2vec 2.0 for w2v-ctc (default: those of torchaudio, if at hand)
seeds="1 2"           # of part seeds, beside seed 0 of part fsdd
seed_systems="ml-vae-rl ml-vae"  # of part seeds: the first minus the second
speaker=theo          # of part speaker
speaker_systems="ml-vae ml-vae-rl ml-vae-sub"  # of part speaker
variants=             # of part variants: names of further files of conf
utterance=            # test utterance in the picture (default: chosen by a rule)
data_dir=data         # as for run.sh
exp_dir=exp           # as for run.sh
device=auto           # auto, cpu or cuda
company=              # what else the machine does meanwhile, for the records
out=                  # file to write (default: RESULTS.md beside this script)
# end options

given=("$@")
here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
root=$(dirname -- "$(dirname -- "$here")")
# shellcheck source=local/environment.sh
source "$root/local/environment.sh"
# shellcheck source=local/parse_options.sh
source "$root/local/parse_options.sh"

known_parts="fsdd seeds correctness speaker variants espeak estep competitors length compose"
corpus_in_words=/path/to/fsdd
[[ $seeds =~ ^[0-9\ ]*$ ]] || usage_error "--seeds must be whole numbers, not '$seeds'"
read -r first second rest <<<"$seed_systems"
[[ -n ${second:-} && -z ${rest:-} ]] || usage_error "--seed-systems must name two, not '$seed_systems'"
# shellcheck source=local/results.sh
source "$root/local/results.sh"

# run_fsdd NAME OPTION ...: run.sh on FSDD.
run_fsdd() {
  local name=$1
  shift
  run_part "$name" - "$root/run.sh" --corpus fsdd "$@" --device "$device"
}

corpus=(${corpus_dir:+--corpus-dir "$corpus_dir"} --num-utterances "$num_utterances")
picture=(${utterance:+--utterance "$utterance"})
folder=audiomnist/fsdd/$config

if wants fsdd; then
  run_fsdd fsdd "${corpus[@]}" --config "$config" --data-dir "$data_dir" --exp-dir "$exp_dir" \
    --systems "$systems" ${w2v_checkpoint:+--w2v-checkpoint "$w2v_checkpoint"} ${picture[@]+"${picture[@]}"} \
    --seed 0
fi

if wants seeds; then
  folders=("$exp_dir/$folder")
  for seed in $seeds; do
    # The data are those of seed 0.
    run_fsdd "seed-$seed" --config "$config" --data-dir "$data_dir" --exp-dir "$exp_dir/seed-$seed" \
      --systems "$seed_systems" --stage 3 --seed "$seed"
    folders+=("$exp_dir/seed-$seed/$folder")
  done
  run_part seeds "$records/seeds-table.txt" "$python" "$root/benchmarks/seeds.py" \
    --data-dir "$data_dir/fsdd" --config "$here/conf/$config.yaml" \
    --exp-dirs "${folders[@]}" --first "$first" --second "$second" \
    --json "$records/seeds.json"
fi

if wants correctness; then
  read -ra names <<<"$seed_systems"
  run_part correctness "$records/correctness-table.txt" "$python" "$root/benchmarks/correctness.py" \
    --data-dir "$data_dir/fsdd" --exp-dir "$exp_dir/$folder" --config "$here/conf/$config.yaml" \
    --systems ${names[@]+"${names[@]}"} --json "$records/correctness.json"
fi

if wants speaker; then
  run_fsdd speaker "${corpus[@]}" --split "speaker:$speaker" --config "$config" \
    --data-dir "$data_dir/speaker-$speaker" --exp-dir "$exp_dir/speaker-$speaker" \
    --systems "$speaker_systems" --seed 0
fi

if wants variants; then
  for variant in $variants; do
    run_fsdd "variant-$variant" --config "$variant" --data-dir "$data_dir" --exp-dir "$exp_dir" \
      --systems ml-vae-sub --stage 3 --seed 0
  done
fi

if wants espeak; then
  run_part espeak - "$root/run.sh" --data-dir "$data_dir" --exp-dir "$exp_dir" --device "$device"
fi

if wants estep; then
  run_part estep "$records/estep-table.txt" "$python" "$root/benchmarks/estep.py" --threads 2 --repeats 40
fi

if wants competitors; then
  run_part competitors "$records/competitors-table.txt" "$python" "$root/benchmarks/competitors.py" \
    --num-utterances 32 --repeats 5
fi

if wants length; then
  run_part length "$records/length-table.txt" "$python" "$root/benchmarks/length.py" \
    ${corpus_dir:+--corpus-dir "$corpus_dir"}
fi

if wants compose; then
  "$python" "$here/compose_results.py" --exp-dir "$exp_dir" --config "$config" --speaker "$speaker" \
    --seeds "0 $seeds" --variants "$variants" --out "$out" --command "$(whole_command)"
fi
