#!/usr/bin/env bash
# Tests and benchmark of the search on a GPU, in one command of less than ten minutes:
#
#   benchmarks/gpu.sh --out-dir exp/gpu
#
# 1. tests/fsa and tests/train on the device (pytest --device),
# 2. benchmarks/estep.py on the CPU and on the device for each size of a batch,
# 3. one table: E-steps a second, the ratio to the compiled DP, and the device memory that was taken.
#
# All that is printed is in OUT_DIR/log, too. It takes the interpreter $PYTHON (default: python3), whose
# k2 and torch must be built for CUDA. `--device cpu` does the same without a GPU, to try this script.
# The exit status is 1 if a test failed, or two ways found different paths.

[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # called as `sh gpu.sh`
set -euo pipefail

# begin options
out_dir=exp/gpu     # folder for the log and the times
device=cuda         # cuda or cpu
sizes="32 256"      # utterances of a batch, in turn
repeats=20          # timed runs of each way
tests="tests/fsa tests/train"  # what pytest runs; may be empty
# end options

root=$(cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=local/environment.sh
source "$root/local/environment.sh"
# shellcheck source=local/parse_options.sh
source "$root/local/parse_options.sh"
python=${PYTHON:-python3}
[[ $device == cuda || $device == cpu ]] || usage_error "--device must be cuda or cpu, not '$device'"
[[ $sizes =~ ^[0-9]+( [0-9]+)*$ ]] || usage_error "--sizes must be numbers, not '$sizes'"

"$python" - "$device" <<'PROGRAM'
import sys

try:
    import k2
    import torch
except ImportError as error:
    sys.exit(f"gpu.sh: {sys.executable} cannot import what is needed: {error}")
if sys.argv[1] == "cuda":
    if not torch.cuda.is_available():
        built = torch.version.cuda
        sys.exit("gpu.sh: torch finds no CUDA device" + ("" if built else "; it is built without CUDA"))
    if not k2.with_cuda:
        sys.exit(f"gpu.sh: k2 {k2.__dev_version__} is built without CUDA; docs/install.md says how to build it")
PROGRAM

mkdir -p "$out_dir"
out_dir=$(cd -- "$out_dir" && pwd)
cd "$root"
exec > >(tee "$out_dir/log") 2>&1
failed=0
if [[ -n $tests ]]; then
  # shellcheck disable=SC2086  # one word a folder
  timeout 400 "$python" -m pytest -q --device "$device" $tests || failed=1
fi
runs=()
for size in $sizes; do
  for place in $([[ $device == cpu ]] || echo "$device") cpu; do
    echo
    "$python" benchmarks/estep.py --device "$place" --num-utterances "$size" --repeats "$repeats" \
      --loop-repeats 1 --json "$out_dir/estep-$place-$size.json" || failed=1
    runs+=("$out_dir/estep-$place-$size.json")
  done
done
echo
"$python" benchmarks/estep.py --table "${runs[@]}" || failed=1
((failed)) && echo "gpu.sh: something failed, see above" || echo "gpu.sh: all passed"
exit "$failed"
