"""Says whether Transformers loads model folders and computes the logits that stand beside them.

    python3 tests/serve/transformers_logits.py FOLDER...

FOLDER holds a model and logits.safetensors with `ids` and `logits`, all in float64. Ends with 0 when every folder agrees, 1
when one does not, 77 when Transformers is not installed (pip install torch transformers safetensors). Called by the slow
tests of tests/serve with the python3 of the path, or the one that NDMESH_PYTHON names.
"""
import pathlib
import sys

try:
    import safetensors.torch
    import torch
    import transformers
except ImportError as missing:
    print(missing)
    sys.exit(77)

# Transformers computes norms and rotary tables in float32 even in a float64 model. Weights rounded to bfloat16 differ by 1e-3.
TOLERANCE = 1e-6


def difference(folder):
    """Largest difference of the logits, relative to the largest logit."""
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager", output_loading_info=True)
    if any(loading.values()):
        raise SystemExit(f"{folder}: {loading}")
    stored = safetensors.torch.load_file(pathlib.Path(folder) / "logits.safetensors")
    with torch.no_grad():
        logits = model(stored["ids"].long()).logits
    return ((logits - stored["logits"]).abs().max() / logits.abs().max()).item()


def main():
    differences = {folder: difference(folder) for folder in sys.argv[1:]}
    print(differences)
    return int(not differences or max(differences.values()) > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
