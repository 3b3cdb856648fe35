"""Makes the reference data of tests/data/oracle: small random models, and what Transformers computes with them in float64.

    python tests/oracle/make_oracle.py [NAME...]

Each folder NAME holds a Hugging Face model (config.json, and model.safetensors in float32, which float64 holds exactly) and
oracle.safetensors: ids and targets (as float64; -100 counts nothing), logits, loss (sum over valid targets divided by their
number) and grad.PARAMETER. Tied weights appear once, as the embedding.
"""
import pathlib
import sys

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "oracle"

SMALL = dict(vocab_size=37, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=26, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0,
             tie_word_embeddings=False)
LLAMA3_ROPE = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=16)
MODELS = {
    "llama": ("Llama", SMALL),
    "llama-tied": ("Llama", dict(SMALL, tie_word_embeddings=True)),
    "llama-scaled": ("Llama", dict(SMALL, rope_scaling=LLAMA3_ROPE, attention_bias=True, mlp_bias=True)),
    "llama-linear": ("Llama", dict(SMALL, rope_scaling=dict(rope_type="linear", factor=4.0))),
    "mistral": ("Mistral", dict(SMALL, head_dim=8, sliding_window=None)),
    "qwen2": ("Qwen2", dict(SMALL, rope_theta=1e6, rms_norm_eps=1e-6)),
    "qwen3": ("Qwen3", dict(SMALL, head_dim=6, rope_theta=1e6, rms_norm_eps=1e-6)),
    "tiny-a": ("Llama", dict(SMALL, vocab_size=257, hidden_size=48, num_hidden_layers=5, num_attention_heads=6,
                             num_key_value_heads=2, head_dim=16, intermediate_size=130,
                             max_position_embeddings=512)),
    # 24 is no square, so that a rounded sqrt(hidden) would be seen; caps and multipliers bite at such weights.
    "gemma2": ("Gemma2", dict(SMALL, hidden_size=24, head_dim=8, query_pre_attn_scalar=10, sliding_window=32,
                              attn_logit_softcapping=2.0, final_logit_softcapping=3.0, tie_word_embeddings=True,
                              pad_token_id=None)),
    "gemma3": ("Gemma3Text", dict(SMALL, hidden_size=24, num_hidden_layers=3, head_dim=8, query_pre_attn_scalar=10,
                                  sliding_window=32, tie_word_embeddings=True, pad_token_id=None,
                                  layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                  rope_theta=1e6, rope_scaling=dict(rope_type="linear", factor=8.0))),
    "gpt2": ("GPT2", dict(vocab_size=37, n_embd=16, n_layer=2, n_head=4, n_positions=64, n_inner=26, attn_pdrop=0.0,
                          embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0, eos_token_id=0)),
    "phi3": ("Phi3", dict(SMALL, head_dim=8, partial_rotary_factor=0.75, pad_token_id=None)),
    "olmo2": ("Olmo2", dict(SMALL, head_dim=6, pad_token_id=None)),
    "granite": ("Granite", dict(SMALL, embedding_multiplier=3.0, attention_multiplier=0.7, residual_multiplier=0.3,
                                logits_scaling=1.7, attention_bias=True)),
}


class NoNarrowing(TorchFunctionMode):
    """Transformers computes norms and rotary tables in float32 whatever the model's dtype, which would limit the reference
    to 1e-7. Inside this mode every request for float32 becomes one for float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def widen(value):
            return torch.float64 if value is torch.float32 else value

        if func is torch.Tensor.float:
            return args[0].double()
        return func(*[widen(a) for a in args], **{k: widen(v) for k, v in (kwargs or {}).items()})


def make(name, family, settings):
    config = getattr(transformers, family + "Config")(**settings, attn_implementation="eager")
    torch.manual_seed(len(name))
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for p in model.parameters():  # norms start at 1 and biases at 0: an error there would go unnoticed
            p.add_(torch.randn_like(p), alpha=0.1)
    folder = DATA / name
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    model = model.double()
    ids = torch.randint(config.vocab_size, (2, 24))
    targets = torch.randint(config.vocab_size, (2, 24))
    targets[0, :5] = -100
    with NoNarrowing():
        for module in model.modules():  # what was computed in float32 when the model was made
            if hasattr(module, "rope_init_fn"):
                module.inv_freq, _ = module.rope_init_fn(module.config, None)
            if hasattr(module, "embed_scale"):
                module.embed_scale = torch.tensor(config.hidden_size**0.5, dtype=torch.float64)
        logits = model(ids, use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
    found = {"ids": ids.double(), "targets": targets.double(), "logits": logits.detach(), "loss": loss.detach().view(1)}
    found |= {f"grad.{n}": p.grad for n, p in model.named_parameters()}
    assert all(t.dtype is torch.float64 for t in found.values())
    save_file({k: v.contiguous() for k, v in found.items()}, folder / "oracle.safetensors")
    print(f"{name}: {sum(p.numel() for p in model.parameters()):,} parameters, loss {loss.item():.15f}")


if __name__ == "__main__":
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    for name in sys.argv[1:] or MODELS:
        make(name, *MODELS[name])
