#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ndmesh/base/hash.h"
#include "ndmesh/job/job.h"

/// Small models of awkward sizes, a token file, and jobs over them, for tests that train.
namespace ndmesh::test {

/// config.json of a variant: tiny (dense llama, 3 layers, odd sizes), tied, qwen2 (biases), qwen3 (q/k norm,
/// wide heads), or one of the families gemma2, gemma3_text, gpt2, phi3, olmo2, granite; "tied_5": with 5 layers.
inline std::string config_of(const std::string& variant_and_layers) {
  const std::size_t end = variant_and_layers.find_last_not_of("0123456789");
  const bool has_layers = variant_and_layers[end] == '_';
  const std::string variant = has_layers ? variant_and_layers.substr(0, end) : variant_and_layers;
  const std::string layers = has_layers ? variant_and_layers.substr(end + 1) : "3";
  const std::string sizes = R"("hidden_size":48,"num_hidden_layers":)" + layers +
                            R"(,"num_attention_heads":6,"num_key_value_heads":2,
         "intermediate_size":130,"vocab_size":257,"max_position_embeddings":512,"rms_norm_eps":1e-5,"rope_theta":10000.0)";
  if (variant == "eight_heads") {  // of which 2 are KV heads: tp=4 shares each between two ranks
    return R"({"model_type":"qwen3","hidden_size":40,"num_hidden_layers":3,"num_attention_heads":8,
               "num_key_value_heads":2,"head_dim":8,"intermediate_size":75,"vocab_size":257,
               "max_position_embeddings":512,"rms_norm_eps":1e-5,"rope_theta":10000.0,"tie_word_embeddings":true})";
  }
  if (variant == "qwen2") {
    return R"({"model_type":"qwen2",)" + sizes + R"(,"head_dim":8,"tie_word_embeddings":false})";
  }
  if (variant == "qwen3") {
    return R"({"model_type":"qwen3",)" + sizes + R"(,"head_dim":16,"tie_word_embeddings":true})";
  }
  const auto family = [&](const std::string& more) {
    return R"({"model_type":")" + variant + R"(",)" + sizes + more + "}";
  };
  if (variant == "gemma2") {  // the cap bites on scores of so small a model
    return family(R"(,"head_dim":16,"attn_logit_softcapping":0.5,"query_pre_attn_scalar":0.5)");
  }
  if (variant == "gemma3_text") {  // q/k norms make scores large: a larger scale would saturate them
    return family(R"(,"head_dim":16,"sliding_window_pattern":2,"query_pre_attn_scalar":16)");
  }
  if (variant == "granite") {
    return family(
        R"(,"embedding_multiplier":12,"attention_multiplier":0.2,"residual_multiplier":0.3,"logits_scaling":0.7)");
  }
  if (variant == "gpt2") {
    return family(R"(,"n_inner":130,"n_positions":128,"attn_pdrop":0,"embd_pdrop":0,"resid_pdrop":0)");
  }
  if (variant == "phi3" || variant == "olmo2") {
    return family(R"(,"head_dim":16)");
  }
  const std::string tied = variant == "tied" ? "true" : "false";
  return R"({"model_type":"llama",)" + sizes + R"(,"head_dim":16,"tie_word_embeddings":)" + tied + "}";
}

inline std::string write_model(const std::filesystem::path& folder, const std::string& variant) {
  const auto path = folder / variant;
  std::filesystem::create_directories(path);
  std::ofstream(path / "config.json") << config_of(variant);
  return path.string();
}

/// Tokens below 257, from a hash: no structure that a wrong order could hide in.
inline std::string write_tokens(const std::filesystem::path& folder, std::int64_t count = 5000) {
  const auto path = folder / "tokens.u16";
  std::ofstream file(path, std::ios::binary);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto token = static_cast<std::uint16_t>(random_at(7, static_cast<std::uint64_t>(i)) % 257);
    file.put(static_cast<char>(token & 0xff)).put(static_cast<char>(token >> 8));
  }
  return path.string();
}

/// A job over those: float64, clipping active at every step.
/// `overrides`: further keys, as on the command line.
inline job::Job tiny_job(const std::filesystem::path& folder, const std::string& variant = "tiny",
                         const std::vector<std::string>& overrides = {}) {
  job::Job job;
  job.name = "tiny";
  job.model.path = write_model(folder, variant);
  job.data.files = {write_tokens(folder)};
  job.data.format = job::DataFormat::u16;
  job.batch = {.global = 12, .micro = 1, .seq_len = 16};
  job.dtype = DType::float64;
  job.optimizer.lr = 1e-2;
  job.train.steps = 5;
  job.train.clip = 0.5;
  job.train.loss_chunk = 7;
  job.run.threads = 1;
  return job::parse_job(job::resolved_yaml(job), "tiny.yaml", overrides);
}

}  // namespace ndmesh::test
