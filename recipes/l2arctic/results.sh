#!/usr/bin/env bash
# Makes RESULTS.md of this recipe from nothing. Its parts, in this order:
#
#   corpus       all systems on the stand-in at its default size, or on the real corpus
#   annotation   protocol annotation, as first published
#   bpe          BPE tokens in place of phones
#   full         the stand-in at the size of L2-ARCTIC; not with --corpus-dir
#   compose      RESULTS.md out of what the others left
#
# A part leaves a record in EXP_DIR/results when it is done. It is not done again while its record is
# there and of the same command; to do all again, remove that folder (trained models are gone on from
# unless their folders are removed, too). A part that was interrupted goes on where it was.

[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # called as `sh recipes/l2arctic/results.sh`
set -euo pipefail

# begin options
corpus_dir=           # folder l2arctic_release_v5.0 (default: the stand-in, simulated)
parts="corpus annotation bpe full compose"  # those to do
config=small          # a file of conf, without .yaml
systems="fa two-pass-fa w2v-ctc ml-vae ml-vae-rl ablation-1 ablation-2 ablation-3 ml-vae-sub"  # of part corpus
other_systems="two-pass-fa ml-vae ml-vae-sub"  # of the other parts
num_utterances=3599   # of part full
w2v_checkpoint=       # weights of wav2vec 2.0 for w2v-ctc (default: those of torchaudio, if at hand)
utterance=            # test utterance in the picture (default: chosen by a rule)
data_dir=data         # as for run.sh
exp_dir=exp           # as for run.sh
device=auto           # auto, cpu or cuda
seed=0                # of everything random
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

known_parts="corpus annotation bpe full compose"
corpus_in_words=/path/to/l2arctic_release_v5.0
# shellcheck source=local/results.sh
source "$root/local/results.sh"

# run_l2arctic NAME OPTION ...: run.sh on the corpus.
run_l2arctic() {
  local name=$1
  shift
  run_part "$name" - "$root/run.sh" --recipe l2arctic ${corpus_dir:+--corpus-dir "$corpus_dir"} "$@" \
    --config "$config" ${w2v_checkpoint:+--w2v-checkpoint "$w2v_checkpoint"} --device "$device" \
    --seed "$seed"
}

folders=(--data-dir "$data_dir" --exp-dir "$exp_dir")
if wants corpus; then
  run_l2arctic corpus "${folders[@]}" --systems "$systems" ${utterance:+--utterance "$utterance"}
fi
if wants annotation; then
  run_l2arctic annotation "${folders[@]}" --systems "$other_systems" --protocol annotation
fi
if wants bpe; then
  run_l2arctic bpe "${folders[@]}" --systems "$other_systems" --unit bpe
fi
if wants full && [[ -z $corpus_dir ]]; then
  run_l2arctic full --num-utterances "$num_utterances" --data-dir "$data_dir/full" \
    --exp-dir "$exp_dir/full" --systems "$other_systems"
fi

if wants compose; then
  corpus=${corpus_dir:+l2arctic}
  "$python" "$here/compose_results.py" --exp-dir "$exp_dir" --corpus "${corpus:-simulate}" \
    --config "$config" --out "$out" --command "$(whole_command)"
fi
