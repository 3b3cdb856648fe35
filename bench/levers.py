#!/usr/bin/env python3
"""What each way to save memory saves and costs here: a table of bytes (of the rank that holds most, counted) and of time.

    bench/levers.py --program build/release/ndmesh --job bench.yaml [--turns 3] [--steps 4] LEVER...

A LEVER is keys of the job joined by "+", as in "shard.zero=2" or "recompute.policy=full+shard.prefetch=0". Every turn runs the
plain job and each lever once; time is the median over turns of (lever's median step) / (plain's median step in that turn), so
that a drifting machine cancels. The first step of a run is dropped.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

CATEGORIES = ("parameters", "master_weights", "gradients", "optimizer", "activations", "gathered", "buffers", "logits")


def run(program, job, keys, steps):
    """Median seconds of a step and peak bytes by category."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "run")
        subprocess.run([program, "train", job, *keys, f"train.steps={steps}", "--out", str(out)], check=True,
                       stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in (out / "record.jsonl").read_text().splitlines()]
    done = [line for line in lines if line["kind"] == "step"][1:]
    return statistics.median(line["seconds"] for line in done), done[-1]["memory"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/ndmesh")
    parser.add_argument("--job", required=True)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("levers", nargs="+", metavar="LEVER")
    options = parser.parse_args()
    levers = ["", *options.levers]
    ratios = {lever: [] for lever in levers}
    memory = {}
    for _ in range(options.turns):
        plain = None
        for lever in levers:
            seconds, memory[lever] = run(options.program, options.job, [key for key in lever.split("+") if key], options.steps)
            plain = plain or seconds
            ratios[lever].append(seconds / plain)
    print("| lever | " + " | ".join(CATEGORIES) + " | sum, MB | saved | time |")
    print("|---|" + "--:|" * (len(CATEGORIES) + 3))
    whole = sum(memory[""][category] for category in CATEGORIES)
    for lever in levers:
        megabytes = [memory[lever][category] / 1e6 for category in CATEGORIES]
        total = sum(megabytes)
        cells = [f"{value:.1f}" for value in [*megabytes, total]] + [f"{1 - total * 1e6 / whole:.0%}",
                                                                     f"{statistics.median(ratios[lever]):.2f}"]
        print(f"| {lever.replace('+', ', ') or 'none'} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
