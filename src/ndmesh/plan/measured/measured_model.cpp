#include "ndmesh/plan/measured/measured_model.h"

#include <algorithm>

namespace ndmesh::plan {
namespace {

constexpr std::int64_t gpt_vocab = 51'200;    // 50257 padded to a multiple of 1024
constexpr std::int64_t llama_vocab = 32'000;  // of the first two generations
constexpr std::int64_t usual_head_dim = 128;

std::string name_of(const MeasuredRow& row) {
  return lower(row.text("model_name"));
}

/// As near 128 wide as divides hidden and deals out whole heads to tp ranks.
std::int64_t guessed_heads(std::int64_t hidden, std::int64_t tp) {
  if (hidden % tp != 0) return 1;
  const std::int64_t parts = hidden / tp;  // heads of a rank divide these
  std::int64_t heads = std::max<std::int64_t>(1, parts / usual_head_dim);
  while (parts % heads != 0) --heads;
  return heads * tp;
}

std::int64_t guessed_ffn(std::int64_t hidden, bool gated) {
  constexpr std::int64_t multiple = 256;
  if (!gated) return 4 * hidden;
  return (8 * hidden / 3 + multiple - 1) / multiple * multiple;
}

/// Latent sizes by the public configurations: the small models of the family (V2-Lite, Moonlight) take
/// queries from hidden directly, the others from a latent.
std::optional<model::LatentAttention> latent_attention(const MeasuredRow& row) {
  const std::string name = name_of(row);
  const bool is_latent = contains(name, "deepseek") || contains(name, "kimi") ||
                         contains(name, "moonlight") || row.noted("multi-latent-attention") ||
                         row.noted("MLA attention");
  if (!is_latent) return std::nullopt;
  const bool small = contains(name, "16b") || contains(name, "lite");
  return model::LatentAttention{
      .query_rank = small ? 0 : 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
}

/// Layers at the start without experts: as the notes say, else as in the public configuration.
std::int64_t dense_layers(const MeasuredRow& row) {
  const std::string notes = lower(row.text("notes"));
  if (const auto count = number_before(notes, "dense layer")) return *count;
  if (const auto count = number_behind(notes, "moe-layer-freq=([0]*")) return *count;
  const std::string name = name_of(row);
  if (contains(name, "deepseek-v3") || contains(name, "deepseekv3")) return contains(name, "16b") ? 1 : 3;
  const bool one = contains(name, "deepseek") || contains(name, "moonlight") || contains(name, "kimi");
  return one ? 1 : 0;
}

std::optional<model::Experts> experts(const MeasuredRow& row) {
  const std::int64_t count = row.whole("experts", 0).value_or(0);
  if (count <= 1) return std::nullopt;
  model::Experts result;
  result.count = count;
  result.per_token = row.needed("top_k");
  result.ffn = row.needed("moe_ffn");
  result.shared_ffn = row.whole("shared_experts", 0).value_or(0) * result.ffn;
  return result;
}

void set_layers_with_experts(model::ModelSpec& spec, const MeasuredRow& row) {
  if (!spec.experts) return;
  std::vector<bool>& layers = spec.experts->layers;
  layers.assign(static_cast<std::size_t>(spec.layers), true);
  std::fill_n(layers.begin(), std::min(dense_layers(row), spec.layers), false);
}

/// What a GPT has beside its dimensions.
void make_gpt(model::ModelSpec& spec, std::int64_t seq_len) {
  spec.family = "gpt2";
  spec.gated = false;
  spec.layer_norm = true;
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = true;
  spec.learned_positions = true;
  spec.max_positions = seq_len;
}

void set_family(model::ModelSpec& spec, const MeasuredRow& row) {
  const std::string name = name_of(row);
  spec.family = "llama";
  spec.qk_norm = contains(name, "qwen3");
  spec.qkv_bias = contains(name, "qwen2");
  if (spec.latent) {
    spec.family = "deepseek_v3";
  } else if (spec.experts) {
    spec.family = contains(name, "qwen3") ? "qwen3_moe" : "mixtral";
  } else if (spec.qk_norm) {
    spec.family = "qwen3";
  } else if (spec.qkv_bias) {
    spec.family = "qwen2";
  }
  if (contains(name, "gpt-oss")) {  // every second layer sees 128 tokens
    spec.family = "gpt_oss";
    spec.attention_sinks = spec.qkv_bias = spec.output_bias = true;
    spec.sliding_window = 128;
    for (std::int64_t layer = 0; layer < spec.layers; ++layer) spec.windowed.push_back(layer % 2 == 0);
  }
}

/// Layers of another kind than attention and feed-forward.
void refuse_hybrids(const MeasuredRow& row) {
  const std::string name = name_of(row);
  if (row.noted("mamba") || contains(name, "qwen3-next") || contains(name, "nemotron_3") ||
      contains(name, "nemotron-3") || contains(name, "nemotron-h")) {
    row.problems().add("its layers are not all attention and feed-forward, which is not modelled");
  }
}

void set_widths(model::ModelSpec& spec, const MeasuredRow& row) {
  spec.hidden = row.needed("hidden");
  spec.layers = row.needed("layers");
  spec.heads = row.whole("heads").value_or(guessed_heads(spec.hidden, row.whole("tp").value_or(1)));
  spec.kv_heads = row.whole("kv_heads").value_or(spec.heads);
  spec.head_dim = row.whole("head_dim").value_or(std::max<std::int64_t>(1, spec.hidden / spec.heads));
  spec.gated = row.flag("gated_mlp");
  spec.vocab = row.whole("vocab").value_or(spec.gated ? llama_vocab : gpt_vocab);
  if (spec.heads % spec.kv_heads != 0) row.problems().add("heads are no multiple of kv_heads");
}

/// Keeps every count of elements and bytes within 64 bits, and the lists by layer short.
void check_size(model::ModelSpec& spec, const MeasuredRow& row) {
  constexpr double most_parameters = 1e15;
  constexpr std::int64_t most_layers = 10'000;
  const auto product = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) * static_cast<double>(b);
  };
  double width = product(spec.ffn, 3) + product(spec.heads + spec.kv_heads, 2 * spec.head_dim);
  if (spec.experts)
    width += 3 * product(spec.experts->count, spec.experts->ffn) + product(3, spec.experts->shared_ffn);
  const auto hidden = static_cast<double>(spec.hidden);
  const double parameters = hidden * (width * static_cast<double>(spec.layers + 1) +
                                      2 * static_cast<double>(spec.vocab + spec.max_positions));
  if (parameters <= most_parameters && spec.layers <= most_layers) return;
  row.problems().add("the model is larger than any: more than 1e15 parameters or 10000 layers");
}

}  // namespace

model::ModelSpec measured_model(const MeasuredRow& row) {
  refuse_hybrids(row);
  model::ModelSpec spec;
  set_widths(spec, row);
  spec.tied = row.flag("tied_embeddings");
  spec.latent = latent_attention(row);
  spec.experts = experts(row);
  spec.mtp_layers =
      row.noted("mtp-num-layers=1") || row.noted("with MTP") || row.noted("1 MTP layer") ? 1 : 0;
  const std::int64_t seq_len = row.needed("seq_len");
  if (spec.experts)
    spec.ffn = row.whole("ffn_hidden").value_or(spec.experts->ffn);
  else
    spec.ffn = row.whole("ffn_hidden").value_or(guessed_ffn(spec.hidden, spec.gated));
  spec.max_positions = seq_len;
  check_size(spec, row);
  if (!row.problems().empty()) return spec;
  set_layers_with_experts(spec, row);
  set_family(spec, row);
  if (!spec.gated && !spec.experts && !spec.latent) make_gpt(spec, seq_len);
  return spec;
}

}  // namespace ndmesh::plan
