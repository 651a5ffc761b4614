#!/usr/bin/env bash
# Profile one call of each GPU oracle on its first and its last shape with Nsight Compute: scripts/profile_oracles.sh FOLDER [PROBLEM...]
#
# Needs ncu, a GPU, and a python3 with torch and arena. Writes FOLDER/PROBLEM_first.csv and PROBLEM_last.csv; what ncu and the call print
# on standard error lies beside them. Clocks are left as they are, so times are those of a score. A profile is cut off after 60 s.
set -u
[ $# -ge 1 ] || { echo "usage: $0 FOLDER [PROBLEM...]" >&2; exit 2; }
cd "$(dirname "$0")/.." || exit
out=$1; shift
mkdir -p "$out"
[ $# -ge 1 ] || set -- kda_cutlass topk_bitonic fp8_gemm w4a16_gemm kahan_softmax paged_attention sonic_moe_swiglu

stall=smsp__average_warps_issue_stalled
metrics=gpu__time_duration.sum,launch__registers_per_thread,launch__occupancy_limit_registers
for unit in dram__throughput sm__throughput; do metrics+=,$unit.avg.pct_of_peak_sustained_elapsed; done
for unit in sm__inst_executed_pipe_tensor sm__warps_active; do metrics+=,$unit.avg.pct_of_peak_sustained_active; done
for why in long_scoreboard short_scoreboard barrier math_pipe_throttle; do metrics+=,${stall}_${why}_per_issue_active.ratio; done

call='
import sys
from pathlib import Path
import torch
from arena import catalog
from arena.judge import problem_code
name, place = sys.argv[1:]
problem, code, kit = catalog.problem(name), problem_code.load(catalog.problem(name), "gpu"), problem_code.kit("benchmark")
shape = dict(problem.shapes["gpu"][0 if place == "first" else -1])
inputs, outputs = code.make_inputs(shape, 1, "public", "cuda"), kit.output_buffers(problem.model_dump(), shape, "cuda")
solution = kit.load_solution(Path("problems", name, "solutions", "oracle_gpu.py"))
for _ in range(2):
    solution(*inputs, *outputs)
torch.cuda.synchronize()
torch.cuda.profiler.start()
solution(*inputs, *outputs)
torch.cuda.synchronize()
torch.cuda.profiler.stop()
'
failed=0
for name in "$@"; do
  for place in first last; do
    file=$out/${name}_$place
    PYTHONPATH=$PWD:${PYTHONPATH:-} timeout 60 ncu --clock-control none --profile-from-start off --csv --metrics "$metrics" \
      python3 -c "$call" "$name" "$place" >"$file.csv" 2>"$file.err" || { echo "$name, $place shape: failed, see $file.err" >&2; failed=1; }
  done
done
exit $failed
