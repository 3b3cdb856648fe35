#!/usr/bin/env python3
"""Collectives of 64 MiB between two ranks, beside memcpy, Gloo and Open MPI, in turn.

    bench/collectives.py --build build/release --torchrun VENV/bin/torchrun [--turns 3]

Needs a build with -DNDMESH_BENCH=ON while an MPI compiler was there (libopenmpi-dev), and a torch with Gloo. Prints the bytes
that a rank must receive over the time (median of the turns), and its share of a memcpy of as many bytes with both cores busy.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess

FOLDER = pathlib.Path(__file__).resolve().parent
GIB = 2**30
BYTES = {"all_gather": 32 << 20, "reduce_scatter": 32 << 20, "all_reduce": 64 << 20}  # 2 ranks
OURS = {"memcpy_all_busy": "memcpy", "all_gather_64_MiB": "all_gather", "reduce_scatter_64_MiB": "reduce_scatter",
        "all_reduce_64_MiB": "all_reduce"}


def output(command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([str(word) for word in command], env=environment, check=True, capture_output=True, text=True).stdout


def ndmesh(build):
    report = json.loads(output([build / "bench/bench_collectives", "--benchmark_format=json",
                                f"--benchmark_filter=^({'|'.join(OURS)})/"]))
    return {OURS[row["name"].split("/")[0]]: row["real_time"] / 1e3 for row in report["benchmarks"]}


def last_json(text):
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--torchrun", required=True)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    seconds = {}
    for _ in range(options.turns):
        for name, times in (
                ("ndmesh", ndmesh(options.build)),
                ("Gloo", last_json(output([options.torchrun, "--nproc-per-node", 2, FOLDER / "peers/collectives_gloo.py"]))),
                ("Open MPI", last_json(output(["mpirun", "--allow-run-as-root", "-np", 2,
                                               options.build / "bench/bench_collectives_mpi"])))):
            for op, value in times.items():
                seconds.setdefault((op, name), []).append(value)
    rates = {key: BYTES.get(key[0], 32 << 20) / statistics.median(values) / GIB for key, values in seconds.items()}
    copy = rates.pop(("memcpy", "ndmesh"))
    print(f"memcpy, both cores busy: {copy:.1f} GiB/s; load {os.getloadavg()[0]:.1f}")
    for (op, name), rate in sorted(rates.items()):
        print(f"{op:<15} {name:<9} {rate:6.1f} GiB/s {rate / copy:6.0%} of memcpy")


if __name__ == "__main__":
    main()
