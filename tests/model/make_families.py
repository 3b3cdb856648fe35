#!/usr/bin/env python3
"""Writes tests/data/model_families: what Transformers itself makes of configurations, on PyTorch's meta device.

    python tests/model/make_families.py

FAMILY.json: small configurations with the name and shape of every parameter, each once, and of every stored buffer
(deepseek_v3's correction of the router). totals.json: the published shapes of models and how many numbers those are.
Needs torch and transformers 4.57.6.
"""

import json
import pathlib

import torch
import transformers

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "model_families"

SMALL = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 80,
    "vocab_size": 101,
    "max_position_embeddings": 256,
}
QWEN_MOE = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "decoder_sparse_step": 2}
DEEPSEEK = {
    "num_key_value_heads": 6,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 2,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "q_lora_rank": 20,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 4,
    "v_head_dim": 14,
    "n_group": 2,
    "topk_group": 1,
}
FAMILIES = {
    "llama": [SMALL | {"attention_bias": True, "mlp_bias": True}, SMALL | {"tie_word_embeddings": True}],
    "mistral": [SMALL],
    "qwen2": [SMALL],
    "qwen3": [SMALL | {"attention_bias": True}],
    "gemma2": [SMALL | {"head_dim": 16}, SMALL | {"tie_word_embeddings": False, "attention_bias": True}],
    "gemma3_text": [SMALL | {"head_dim": 16}],
    "gpt2": [
        {"n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 64, "vocab_size": 101},
        {"n_embd": 48, "n_layer": 1, "n_head": 4, "n_inner": 100, "vocab_size": 101, "tie_word_embeddings": False},
    ],
    "gpt_neox": [
        SMALL,
        SMALL | {"attention_bias": False, "tie_word_embeddings": True, "use_parallel_residual": False},
    ],
    "mixtral": [SMALL | {"num_local_experts": 3}],
    "qwen2_moe": [SMALL | QWEN_MOE | {"shared_expert_intermediate_size": 40}, SMALL | QWEN_MOE | {"qkv_bias": False}],
    "qwen3_moe": [
        SMALL | QWEN_MOE,
        SMALL | QWEN_MOE | {"decoder_sparse_step": 1, "mlp_only_layers": [1], "head_dim": 16, "attention_bias": True},
    ],
    "deepseek_v2": [SMALL | DEEPSEEK | {"q_lora_rank": None}, SMALL | DEEPSEEK | {"attention_bias": True}],
    "deepseek_v3": [SMALL | DEEPSEEK | {"attention_bias": True}, SMALL | DEEPSEEK],
    "gpt_oss": [SMALL | {"head_dim": 16, "num_local_experts": 3, "num_experts_per_tok": 2}],
    "phi3": [SMALL | {"pad_token_id": 0}],
    "olmo2": [SMALL, SMALL | {"attention_bias": True, "num_key_value_heads": 6, "tie_word_embeddings": True}],
    "granite": [SMALL | {"attention_bias": True, "mlp_bias": True}, SMALL | {"tie_word_embeddings": True}],
}


def sizes(hidden, layers, heads, kv_heads, head_dim, ffn, vocab, **more):
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": ffn,
        "vocab_size": vocab,
    } | more


# The numbers of each model's own config.json.
PUBLISHED = {
    "Llama-2-7b": ("llama", sizes(4096, 32, 32, 32, 128, 11008, 32000)),
    "Llama-2-13b": ("llama", sizes(5120, 40, 40, 40, 128, 13824, 32000)),
    "Llama-2-70b": ("llama", sizes(8192, 80, 64, 8, 128, 28672, 32000)),
    "Llama-3-8B": ("llama", sizes(4096, 32, 32, 8, 128, 14336, 128256)),
    "Llama-3-70B": ("llama", sizes(8192, 80, 64, 8, 128, 28672, 128256)),
    "Llama-3.1-405B": ("llama", sizes(16384, 126, 128, 8, 128, 53248, 128256)),
    "Llama-3.2-1B": ("llama", sizes(2048, 16, 32, 8, 64, 8192, 128256, tie_word_embeddings=True)),
    "Llama-3.2-3B": ("llama", sizes(3072, 28, 24, 8, 128, 8192, 128256, tie_word_embeddings=True)),
    "Mistral-7B": ("mistral", sizes(4096, 32, 32, 8, 128, 14336, 32000)),
    "Qwen2.5-7B": ("qwen2", sizes(3584, 28, 28, 4, 128, 18944, 152064)),
    "Qwen2.5-72B": ("qwen2", sizes(8192, 80, 64, 8, 128, 29568, 152064)),
    "Qwen3-8B": ("qwen3", sizes(4096, 36, 32, 8, 128, 12288, 151936)),
    "Qwen3-32B": ("qwen3", sizes(5120, 64, 64, 8, 128, 25600, 151936)),
    "gemma-2-2b": ("gemma2", sizes(2304, 26, 8, 4, 256, 9216, 256000)),
    "gemma-2-9b": ("gemma2", sizes(3584, 42, 16, 8, 256, 14336, 256000)),
    "gemma-2-27b": ("gemma2", sizes(4608, 46, 32, 16, 128, 36864, 256000)),
    "gemma-3-1b": ("gemma3_text", sizes(1152, 26, 4, 1, 256, 6912, 262144)),
    "gemma-3-27b (text)": ("gemma3_text", sizes(5376, 62, 32, 16, 128, 21504, 262208)),
    "gpt2": ("gpt2", {}),
    "gpt2-xl": ("gpt2", {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "gpt-neox-20b": ("gpt_neox", {}),
    "pythia-6.9b": (
        "gpt_neox",
        {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "intermediate_size": 16384,
            "vocab_size": 50432,
        },
    ),
    "Mixtral-8x7B": ("mixtral", {}),
    "Mixtral-8x22B": ("mixtral", sizes(6144, 56, 48, 8, 128, 16384, 32768)),
    "Qwen1.5-MoE-A2.7B": ("qwen2_moe", {}),
    "Qwen2-57B-A14B": (
        "qwen2_moe",
        {
            "hidden_size": 3584,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "intermediate_size": 18944,
            "moe_intermediate_size": 2560,
            "shared_expert_intermediate_size": 20480,
            "num_experts": 64,
            "num_experts_per_tok": 8,
        },
    ),
    "Qwen3-30B-A3B": ("qwen3_moe", sizes(2048, 48, 32, 4, 128, 6144, 151936)),
    "Qwen3-235B-A22B": ("qwen3_moe", sizes(4096, 94, 64, 4, 128, 12288, 151936, moe_intermediate_size=1536)),
    "DeepSeek-V2-Lite": (
        "deepseek_v2",
        {
            "hidden_size": 2048,
            "num_hidden_layers": 27,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "intermediate_size": 10944,
            "moe_intermediate_size": 1408,
            "vocab_size": 102400,
            "q_lora_rank": None,
            "first_k_dense_replace": 1,
            "num_experts_per_tok": 6,
        },
    ),
    "DeepSeek-V2": (
        "deepseek_v2",
        {
            "hidden_size": 5120,
            "num_hidden_layers": 60,
            "num_attention_heads": 128,
            "num_key_value_heads": 128,
            "intermediate_size": 12288,
            "moe_intermediate_size": 1536,
            "vocab_size": 102400,
            "n_routed_experts": 160,
            "first_k_dense_replace": 1,
            "num_experts_per_tok": 6,
        },
    ),
    "DeepSeek-V3": ("deepseek_v3", {}),
    "gpt-oss-20b": ("gpt_oss", {"num_hidden_layers": 24, "num_local_experts": 32}),
    "gpt-oss-120b": ("gpt_oss", {}),
    "Phi-3-mini": ("phi3", {}),
    "OLMo-2-7B": ("olmo2", sizes(4096, 32, 32, 32, 128, 11008, 100352)),
    "OLMo-2-13B": ("olmo2", sizes(5120, 40, 40, 40, 128, 13824, 100352)),
    "granite-3.1-2b": ("granite", sizes(2048, 40, 32, 8, 64, 8192, 49155, tie_word_embeddings=True)),
    "granite-3.1-8b": ("granite", sizes(4096, 40, 32, 8, 128, 12800, 49155, tie_word_embeddings=True)),
}


def parameters_of(family, config):
    made = transformers.AutoConfig.for_model(family, **config)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made)
    buffers = dict(model.named_buffers())
    stored = {name: tensor for name, tensor in model.state_dict().items() if name in buffers}
    return dict(model.named_parameters()) | stored


def write(name, value):
    (FOLDER / name).write_text(json.dumps(value, separators=(",", ":")) + "\n")


def main():
    FOLDER.mkdir(exist_ok=True)
    for family, configs in FAMILIES.items():
        models = []
        for config in configs:
            shapes = {name: list(tensor.shape) for name, tensor in parameters_of(family, config).items()}
            models.append({"config": {"model_type": family} | config, "parameters": shapes})
        write(f"{family}.json", models)
    totals = []
    for name, (family, config) in PUBLISHED.items():
        count = sum(tensor.numel() for tensor in parameters_of(family, config).values())
        totals.append({"name": name, "config": {"model_type": family} | config, "parameters": count})
        print(f"{name:24} {count:>16,}", flush=True)
    write("totals.json", totals)


if __name__ == "__main__":
    main()
