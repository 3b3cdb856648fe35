"""The collectives of bench/collectives.cpp by torch.distributed over Gloo, for comparison:

    torchrun --nproc-per-node 2 bench/peers/collectives_gloo.py

Rank 0 prints {"OP": SECONDS, ...}: medians of the rounds between two barriers.
"""

import json
import statistics
import time

import torch
import torch.distributed as dist

LARGE = 64 << 20  # bytes
ROUNDS = 15


def median_round(work):
    seconds = []
    for i in range(-2, ROUNDS):  # two to warm up
        dist.barrier()
        begin = time.perf_counter()
        work()
        dist.barrier()
        if i >= 0:
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    whole = torch.ones(LARGE // 4)
    part = torch.ones(len(whole) // dist.get_world_size())
    seconds = {"all_gather": median_round(lambda: dist.all_gather_into_tensor(whole, part)),
               "reduce_scatter": median_round(lambda: dist.reduce_scatter_tensor(part, whole)),
               "all_reduce": median_round(lambda: dist.all_reduce(whole))}
    if dist.get_rank() == 0:
        print(json.dumps(seconds))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
