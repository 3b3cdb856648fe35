#!/usr/bin/env python3
"""Runs ndmesh and a rival in turn on the same work and prints the ratio of their speeds and memories.

    bench/compare.py --ndmesh 'build/release/ndmesh train JOB KEY=VALUE... --overwrite --out {out}' \
                     --rival 'torchrun --nproc-per-node 2 trainer.py ... --steps {steps} --out {out}' --turns 5

Both commands write JSON Lines with `seconds` of each step: ndmesh into {out}/record.jsonl, the rival into the file
{out}. The first step of every run is dropped. Machines drift, so what counts is the ratio within a turn, and its
median over turns. Memory is the largest sum of resident pages over the command's processes, sampled every 20 ms;
pages that processes share count once for each (private + shared / sharers: PSS).
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import tempfile
import time


def descendants(root):
    children = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry))
    found, left = [], [root]
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def proportional_bytes(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except (OSError, ValueError):
        return 0


def run(command):
    """Runs to the end; returns the largest memory seen, in bytes."""
    process = subprocess.Popen(shlex.split(command), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    largest = 0
    while process.poll() is None:
        largest = max(largest, sum(map(proportional_bytes, descendants(process.pid))))
        time.sleep(0.02)
    if process.returncode != 0:
        raise SystemExit(f"compare: {command}\nended with {process.returncode}:\n{process.stderr.read()[-2000:]}")
    return largest


def step_seconds(path):
    """Seconds of every step but the first."""
    with open(path) as file:
        lines = [json.loads(line) for line in file]
    return [line["seconds"] for line in lines if "step" in line and "seconds" in line][1:]


def measure(template, steps, is_ndmesh):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run" if is_ndmesh else "steps.jsonl")
        memory = run(template.format(out=out, steps=steps))
        return statistics.median(step_seconds(os.path.join(out, "record.jsonl") if is_ndmesh else out)), memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ndmesh", required=True, help="command with {out}, and {steps} if it likes")
    parser.add_argument("--rival", required=True, help="command with {out}")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tokens", type=int, help="of one step: prints tokens per second too")
    parser.add_argument("--name", default="", help="first column of the table row")
    a = parser.parse_args()
    ratios, ours, theirs, memories = [], [], [], []
    for turn in range(a.turns):
        seconds, memory = measure(a.ndmesh, a.steps, True)
        rival_seconds, rival_memory = measure(a.rival, a.steps, False)
        ratios.append(rival_seconds / seconds)
        ours.append(seconds)
        theirs.append(rival_seconds)
        memories.append((memory, rival_memory))
        print(f"turn {turn + 1}: {seconds:.3f} s against {rival_seconds:.3f} s a step: {ratios[-1]:.2f}x; "
              f"memory {memory / 2**20:.0f} against {rival_memory / 2**20:.0f} MiB", flush=True)
    rate = lambda values: f"{a.tokens / statistics.median(values):.0f}" if a.tokens else "-"
    print(f"| {a.name} | {rate(ours)} | {rate(theirs)} | {statistics.median(ratios):.2f} "
          f"({min(ratios):.2f} to {max(ratios):.2f}) | {statistics.median(m for m, _ in memories) / 2**20:.0f} | "
          f"{statistics.median(m for _, m in memories) / 2**20:.0f} |")


if __name__ == "__main__":
    main()
