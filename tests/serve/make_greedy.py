"""Writes tests/data/generate/greedy.json: greedy continuations by Transformers in float64, without a cache.

    pip install torch==2.13.0 transformers==4.57.6 safetensors
    python tests/serve/make_greedy.py

For each model of tests/data/oracle: a prompt, the tokens that follow, and the smallest distance between the first and the
second logit on the way, which says that no rounding can change a choice.
"""
import json
import pathlib

import torch
import transformers

DATA = pathlib.Path(__file__).parents[1] / "data"
LENGTHS = {"tiny-a": 200}  # others fill the model's positions, 30 tokens at most
PROMPT = [1, 5, 3, 8, 13, 2, 11]


def continued(model, tokens, count):
    """The greedy tokens, and the smallest margin."""
    tokens = list(tokens)
    margin = float("inf")
    for _ in range(count):
        logits = model(torch.tensor([tokens])).logits[0, -1]
        best = logits.topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        tokens.append(best.indices[0].item())
    return tokens[-count:], margin


def main():
    result = {}
    for folder in sorted((DATA / "oracle").iterdir()):
        if not folder.is_dir():
            continue
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager")
        prompt = [token % model.config.vocab_size for token in PROMPT]
        longest = min(model.config.max_position_embeddings, getattr(model.config, "sliding_window", None) or 1 << 30)
        room = longest - len(prompt)
        with torch.no_grad():
            tokens, margin = continued(model, prompt, min(LENGTHS.get(folder.name, 30), room))
        result[folder.name] = {"prompt": prompt, "tokens": tokens, "margin": margin}
    (DATA / "generate").mkdir(exist_ok=True)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in result.items())
    (DATA / "generate" / "greedy.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
