#include "ndmesh/model/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/file.h"
#include "ndmesh/base/json.h"
#include "ndmesh/base/log.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/model/config_parts.h"

namespace ndmesh::model {
namespace {

constexpr IntegerRange vocab_range = {1, 2147483647};
constexpr IntegerRange token_range = {-1, 2147483647};
constexpr double most_parameters = 1e15;
constexpr std::int64_t most_config_bytes = 4 << 20;

class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& root, const Family& family, const std::string& source,
               Problems& problems)
      : config_{root, family, source, problems, KeyReader(root, source, problems), {}} {}

  ModelSpec read() {
    spec_.family = family_.name;
    read_sizes();
    read_heads();
    if (!family_.learned_positions) {
      read_rope(config_);
    }
    read_windows(config_);
    read_latent_attention(config_);
    read_experts(config_);
    read_switches();
    read_scales(config_);
    read_dropout(config_);
    read_tokens();
    read_dtype();
    if (keys_.has("quantization_config")) {
      config_.only_planned("quantization_config", "quantized weights are not built");
    }
    if (config_.problems.empty()) {
      check_count();
    }
    return spec_;
  }

 private:
  /// A key in the family's spelling; the general one is read in its place.
  std::string spelt(std::string_view own, const std::string& general) {
    return keys_.present(std::string(own)) || !keys_.present(general) ? std::string(own) : general;
  }

  void read_sizes() {
    const Family::Keys& names = family_.keys;
    spec_.vocab = keys_.integer("vocab_size", family_.vocab, vocab_range);
    spec_.hidden = keys_.integer(spelt(names.hidden, "hidden_size"), family_.hidden, hidden_range);
    spec_.layers = keys_.integer(spelt(names.layers, "num_hidden_layers"), family_.layers, layers_range);
    spec_.max_positions = keys_.integer(spelt(names.positions, "max_position_embeddings"),
                                        family_.max_positions, positions_range);
    spec_.norm_eps = keys_.number(std::string(names.norm_eps), family_.norm_eps, {0, 1});
    spec_.initializer_range = keys_.number("initializer_range", 0.02, {0, 100});
    const std::string ffn(names.ffn);
    const bool four_times = family_.ffn == 0 && !keys_.has(ffn);  // gpt2, for an absent key or null
    spec_.ffn = four_times ? 4 * spec_.hidden : keys_.integer(ffn, family_.ffn, ffn_range);
  }

  void read_heads() {
    spec_.heads = keys_.integer(spelt(family_.keys.heads, "num_attention_heads"), family_.heads, heads_range);
    spec_.kv_heads = family_.reads_kv_heads ? read_kv_heads() : spec_.heads;
    spec_.head_dim = family_.experts == Family::Experts::deepseek ? 2 : read_head_dim();
    if (spec_.head_dim % 2 != 0 && !family_.learned_positions) {
      keys_.problem("head_dim", fmt::format("{} is odd; rotary positions turn pairs", spec_.head_dim));
    }
  }

  std::int64_t read_kv_heads() {
    const auto given = keys_.optional_integer("num_key_value_heads", heads_range);
    const bool absent = !keys_.present("num_key_value_heads");
    const std::int64_t kv_heads =
        given.value_or(absent ? family_.kv_heads.value_or(spec_.heads) : spec_.heads);
    if (spec_.heads % kv_heads != 0) {
      keys_.problem(
          "num_attention_heads",
          fmt::format("{} is no multiple of num_key_value_heads {}{}", spec_.heads, kv_heads,
                      absent ? fmt::format(" (what {} takes for an absent key)", family_.name) : ""));
    }
    return kv_heads;
  }

  std::int64_t read_head_dim() {
    const bool reads = family_.reads_head_dim;
    const auto given = reads ? keys_.optional_integer("head_dim", head_dim_range) : std::nullopt;
    if (given || (reads && keys_.has("head_dim"))) {
      return given.value_or(2);
    }
    if (!keys_.present("head_dim") && family_.head_dim) {
      return *family_.head_dim;
    }
    if (spec_.hidden % spec_.heads != 0) {
      keys_.problem("head_dim",
                    fmt::format("is not given, and hidden_size {} is no multiple of num_attention_heads {}",
                                spec_.hidden, spec_.heads));
      return 2;
    }
    return spec_.hidden / spec_.heads;
  }

  void read_switches() {
    const bool attention_bias = family_.reads_attention_bias
                                    ? keys_.boolean("attention_bias", family_.attention_bias)
                                    : family_.attention_bias;
    const bool qkv_bias = family_.reads_qkv_bias && keys_.boolean("qkv_bias", true);
    spec_.qkv_bias = family_.always_qkv_bias || qkv_bias || attention_bias;
    spec_.output_bias = attention_bias;
    spec_.mlp_bias = family_.reads_mlp_bias ? keys_.boolean("mlp_bias", family_.mlp_bias) : family_.mlp_bias;
    spec_.tied = keys_.boolean("tie_word_embeddings", family_.tied);
    spec_.qk_norm = family_.qk_norm;
    spec_.layer_norm = family_.layer_norm;
    spec_.gated = family_.gated;
    spec_.learned_positions = family_.learned_positions;
    spec_.fused_qkv = family_.fused_qkv;
    spec_.fused_gate_up = family_.fused_gate_up;
    spec_.pre_norms = family_.pre_norms;
    spec_.post_norms = family_.post_norms;
    spec_.unit_offset_norm = family_.unit_offset_norm;
    spec_.qk_norm_whole = family_.qk_norm_whole;
    spec_.attention_sinks = family_.attention_sinks;
  }

  void read_tokens() {
    spec_.bos_token = keys_.optional_integer("bos_token_id", token_range);
    if (!keys_.present("bos_token_id")) {
      spec_.bos_token = family_.bos_token;
    }
    spec_.pad_token = keys_.optional_integer("pad_token_id", token_range);
    if (!keys_.present("pad_token_id")) {
      spec_.pad_token = family_.pad_token;
    }
    read_eos();
    if (!keys_.present("ndmesh_tokens")) {
      return;
    }
    if (keys_["ndmesh_tokens"] != "bytes") {
      return keys_.refuse("ndmesh_tokens", "bytes");
    }
    spec_.byte_tokens = true;
    if (spec_.vocab < 256) {
      keys_.problem(
          "vocab_size",
          fmt::format("{} is too small for ndmesh_tokens: bytes; allowed: 256 or more", spec_.vocab));
    }
  }

  void read_eos() {
    if (!keys_.present("eos_token_id")) {
      if (family_.eos_token) {
        spec_.eos_tokens = {*family_.eos_token};
      }
      return;
    }
    const nlohmann::json& given = config_.root["eos_token_id"];
    const nlohmann::json ids = given.is_null()    ? nlohmann::json::array()
                               : given.is_array() ? given
                                                  : nlohmann::json{given};
    for (const nlohmann::json& id : ids) {
      if (!id.is_number_integer() || id < token_range.least || id > token_range.most) {
        return keys_.refuse("eos_token_id", "a token number, a list of them, or null");
      }
      spec_.eos_tokens.push_back(id.get<std::int64_t>());
    }
  }

  void read_dtype() {
    const std::string new_name = keys_.text("dtype", "auto");
    const std::string old_name = keys_.text("torch_dtype", "auto");
    const std::string name = new_name == "auto" ? old_name : new_name;
    if (name == "auto") {
      return;
    }
    const auto dtype = dtype_from_name(name);
    if (old_name != "auto" && dtype != dtype_from_name(old_name)) {
      keys_.problem("torch_dtype", shown(old_name) + " contradicts dtype " + shown(new_name));
    }
    const bool real = dtype == DType::float64 || dtype == DType::float32 || dtype == DType::bfloat16 ||
                      dtype == DType::float16;
    if (!real) {
      keys_.refuse(new_name == "auto" ? "torch_dtype" : "dtype", "bfloat16, float16, float32, float64, auto");
    }
    spec_.stored_dtype = dtype;
  }

  /// Summed in floating point, as sizes within their own ranges may exceed 64 bits together.
  void check_count() {
    const double count = approximate_parameter_count(spec_);
    if (count > most_parameters) {
      config_.problems.add(
          fmt::format("{}: the sizes make about {:.3g} parameters; at most {:.0f} are planned for",
                      config_.source, count, most_parameters));
    }
  }

  ConfigParts config_;
  KeyReader& keys_ = config_.keys;
  const Family& family_ = config_.family;
  ModelSpec& spec_ = config_.spec;
};

const Family* read_family(const nlohmann::json& root, const std::string& source, Problems& problems) {
  const bool named = root.contains("model_type") && root["model_type"].is_string();
  const std::string name = named ? root["model_type"].get<std::string>() : "";
  const Family* family = find_family(name);
  if (family == nullptr) {
    const std::string what =
        named ? "model_type " + shown(name) + " is not built" : "model_type is missing or no text";
    problems.add(fmt::format("{}: {}; allowed: {}{}", source, what, join(supported_families()),
                             did_you_mean(name, supported_families())));
  }
  return family;
}

/// The language model of a multi-modal configuration: `text_config` over what the root says of all parts.
nlohmann::json language_model(const nlohmann::json& root, const std::string& source, Problems& problems) {
  if (!root.contains("text_config") || root["text_config"].is_null()) {
    return root;
  }
  const nlohmann::json& nested = root["text_config"];
  if (!nested.is_object()) {
    problems.add(source + ": text_config must be an object");
    return root;
  }
  const std::string tied = "tie_word_embeddings";
  if (root.contains(tied) && nested.contains(tied) && root[tied] != nested[tied]) {
    problems.add(source + ": text_config: " + tied + " contradicts " + tied + " outside");
  }
  for (const char* part : {"vision_config", "audio_config"}) {
    if (root.contains(part)) {
      log_warning(fmt::format("{}: only the language model is read; {} is left out", source, part));
    }
  }
  nlohmann::json merged = root;
  merged.erase("text_config");
  merged.update(nested);
  return merged;
}

}  // namespace

ModelSpec spec_from_config(std::string_view json_text, const std::string& source) {
  const nlohmann::json root = parse_json(json_text, source);
  if (!root.is_object()) {
    throw RequestError(source + ": holds no JSON object");
  }
  Problems problems;
  const nlohmann::json config = language_model(root, source, problems);
  const Family* family = read_family(config, source, problems);
  ModelSpec spec;
  if (family != nullptr) {
    spec = ConfigReader(config, *family, source, problems).read();
  }
  problems.raise();
  return spec;
}

ModelSpec spec_from_folder(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  return spec_from_config(read_file(file, most_config_bytes), file.string());
}

}  // namespace ndmesh::model
