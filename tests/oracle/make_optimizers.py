"""Makes tests/data/optimizers/steps.json: what PyTorch's optimizers make of three small parameters in five steps, in float64.

    python tests/oracle/make_optimizers.py

Element i (counted from 0) of parameter p (0, 1, 2) begins as cos(i + p) and has gradient sin(0.7 * i + p + t) in step t
(1 to 5). Weight decay is on the matrices only. torch.optim.Muon multiplies in bfloat16; for float64 its cast is made an
identity, everything else is PyTorch's own code.
"""
import json
import pathlib

import torch

FILE = pathlib.Path(__file__).resolve().parent.parent / "data" / "optimizers" / "steps.json"
SHAPES = [(6, 4), (3, 7), (5,)]
LR, DECAY, STEPS = 0.05, 0.1, 5


def start():
    return [torch.cos(torch.arange(torch.Size(s).numel(), dtype=torch.float64) + p).reshape(s) for p, s in enumerate(SHAPES)]


def gradient(p, t):
    n = torch.arange(torch.Size(SHAPES[p]).numel(), dtype=torch.float64)
    return torch.sin(0.7 * n + p + t).reshape(SHAPES[p])


def run(make):
    parameters = start()
    optimizers = make(parameters)
    for t in range(1, STEPS + 1):
        for p, parameter in enumerate(parameters):
            parameter.grad = gradient(p, t)
        for optimizer in optimizers:
            optimizer.step()
    return [p.flatten().tolist() for p in parameters]


def groups(parameters):
    return [dict(params=parameters[:2], weight_decay=DECAY), dict(params=parameters[2:], weight_decay=0.0)]


def adamw(parameters, betas=(0.9, 0.95)):
    return [torch.optim.AdamW(groups(parameters), lr=LR, betas=betas, eps=1e-8)]


def sgd(momentum, nesterov):
    return lambda parameters: [torch.optim.SGD(groups(parameters), lr=LR, momentum=momentum, nesterov=nesterov)]


def muon(nesterov):
    def make(parameters):
        matrices = torch.optim.Muon(parameters[:2], lr=LR, weight_decay=DECAY, momentum=0.95, nesterov=nesterov,
                                    adjust_lr_fn="match_rms_adamw")
        return [matrices, torch.optim.AdamW(parameters[2:], lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)]
    return make


def main():
    result = {"adamw": run(adamw), "sgd": run(sgd(0.95, False)), "sgd_nesterov": run(sgd(0.95, True)),
              "sgd_plain": run(sgd(0.0, False)), "muon_bfloat16": run(muon(True))}
    torch.Tensor.bfloat16 = torch.Tensor.clone
    result["muon"] = run(muon(True))
    result["muon_plain"] = run(muon(False))
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
