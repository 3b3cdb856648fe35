#include "ndmesh/model/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/file.h"
#include "ndmesh/base/json.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/model/family.h"
#include "ndmesh/model/key_reader.h"

namespace ndmesh::model {
namespace {

// Generous, and such that no count below leaves 64 bits.
constexpr IntegerRange vocab_range = {1, 2147483647};
constexpr IntegerRange hidden_range = {1, 1 << 20};
constexpr IntegerRange ffn_range = {1, 1 << 24};
constexpr IntegerRange layers_range = {1, 1 << 14};
constexpr IntegerRange heads_range = {1, 1 << 14};
constexpr IntegerRange head_dim_range = {1, 1 << 12};
constexpr IntegerRange positions_range = {1, 2147483647};
constexpr IntegerRange token_range = {-1, 2147483647};
constexpr std::int64_t most_parameters = 1'000'000'000'000'000;

constexpr std::int64_t most_config_bytes = 4 << 20;

class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& root, const Family& family, const std::string& source,
               Problems& problems)
      : root_(root), family_(family), source_(source), problems_(problems), keys_(root, source, problems) {}

  ModelSpec read() {
    spec_.family = family_.name;
    read_sizes();
    read_heads();
    read_rope();
    read_window();
    read_switches();
    read_tied();
    read_tokens();
    read_dtype();
    refuse_what_is_not_built();
    if (problems_.empty()) {
      check_count();
    }
    return spec_;
  }

 private:
  void read_sizes() {
    spec_.vocab = keys_.integer("vocab_size", family_.vocab, vocab_range);
    spec_.hidden = keys_.integer("hidden_size", family_.hidden, hidden_range);
    spec_.ffn = keys_.integer("intermediate_size", family_.ffn, ffn_range);
    spec_.layers = keys_.integer("num_hidden_layers", family_.layers, layers_range);
    spec_.max_positions = keys_.integer("max_position_embeddings", family_.max_positions, positions_range);
    spec_.norm_eps = keys_.number("rms_norm_eps", 1e-6, {0, 1});
    spec_.initializer_range = keys_.number("initializer_range", 0.02, {0, 100});
  }

  void read_heads() {
    spec_.heads = keys_.integer("num_attention_heads", family_.heads, heads_range);
    const auto kv_heads = keys_.optional_integer("num_key_value_heads", heads_range);
    const bool kv_absent = !keys_.present("num_key_value_heads");
    spec_.kv_heads = kv_heads.value_or(kv_absent ? family_.kv_heads.value_or(spec_.heads) : spec_.heads);
    if (spec_.heads % spec_.kv_heads != 0) {
      keys_.problem(
          "num_attention_heads",
          fmt::format("{} is no multiple of num_key_value_heads {}{}", spec_.heads, spec_.kv_heads,
                      kv_absent ? fmt::format(" (what {} takes for an absent key)", family_.name) : ""));
    }
    spec_.head_dim = read_head_dim();
    if (spec_.head_dim % 2 != 0) {
      keys_.problem("head_dim", fmt::format("{} is odd; rotary positions turn pairs", spec_.head_dim));
    }
  }

  std::int64_t read_head_dim() {
    const auto given = keys_.optional_integer("head_dim", head_dim_range);
    if (given || keys_.has("head_dim")) {
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

  void read_rope() {
    spec_.rope_theta = keys_.number("rope_theta", 10000.0, {0, 1e18});
    const bool both = keys_.has("rope_scaling") && keys_.has("rope_parameters");
    if (both) {
      keys_.problem("rope_scaling", "is given beside rope_parameters; keep one of them");
    } else if (keys_.has("rope_scaling")) {
      read_rope_block("rope_scaling");
    } else if (keys_.has("rope_parameters")) {
      read_rope_block("rope_parameters");
    }
    if (keys_.number("partial_rotary_factor", 1.0, {0, 1}) != 1.0) {
      keys_.problem("partial_rotary_factor", "is not built; allowed: 1.0");
    }
  }

  void read_rope_block(const std::string& name) {
    if (!root_[name].is_object()) {
      return keys_.refuse(name, "an object or null");
    }
    KeyReader block(root_[name], source_ + ": " + name, problems_);
    refuse_unknown_rope_keys(block);
    const double theta = block.number("rope_theta", spec_.rope_theta, {0, 1e18});
    if (keys_.present("rope_theta") && theta != spec_.rope_theta) {
      block.problem("rope_theta",
                    fmt::format("{} differs from rope_theta {} outside", theta, spec_.rope_theta));
    }
    spec_.rope_theta = theta;
    if (block.number("partial_rotary_factor", 1.0, {0, 1}) != 1.0) {
      block.problem("partial_rotary_factor", "is not built; allowed: 1.0");
    }
    read_rope_kind(block);
  }

  static void refuse_unknown_rope_keys(KeyReader& block) {
    static const std::vector<std::string> known = {"type",
                                                   "rope_type",
                                                   "factor",
                                                   "low_freq_factor",
                                                   "high_freq_factor",
                                                   "original_max_position_embeddings",
                                                   "rope_theta",
                                                   "beta_fast",
                                                   "beta_slow",
                                                   "short_factor",
                                                   "long_factor",
                                                   "partial_rotary_factor",
                                                   "mscale",
                                                   "truncate",
                                                   "finetuned",
                                                   "mscale_all_dim",
                                                   "attention_factor"};
    for (const std::string& key : block.keys()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        block.problem(shown(key), "unknown key" + did_you_mean(key, known));
      }
    }
  }

  void read_rope_kind(KeyReader& block) {
    const std::string new_name = block.text("rope_type", "");
    const std::string old_name = block.text("type", "");
    if (!new_name.empty() && !old_name.empty() && new_name != old_name) {
      return block.problem("type", shown(old_name) + " contradicts rope_type " + shown(new_name));
    }
    const std::string kind = new_name.empty() ? old_name : new_name;
    if (kind == "default") {
      return;
    }
    if (kind.empty()) {
      if (block.present("factor")) {
        block.problem("rope_type", "is missing; allowed: default, linear, llama3");
      }
      return;
    }
    if (kind != "linear" && kind != "llama3") {
      return block.problem("rope_type", shown(kind) + " is not built; allowed: default, linear, llama3");
    }
    spec_.rope_scaling.kind = kind == "linear" ? RopeScaling::Kind::linear : RopeScaling::Kind::llama3;
    read_rope_numbers(block);
  }

  void read_rope_numbers(KeyReader& block) {
    RopeScaling& scaling = spec_.rope_scaling;
    std::vector<std::string> needed = {"factor"};
    if (scaling.kind == RopeScaling::Kind::llama3) {
      needed.insert(needed.end(),
                    {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
    }
    for (const std::string& key : needed) {
      if (!block.present(key)) {
        block.problem(key, "is missing");
      }
    }
    scaling.factor = block.number("factor", 1.0, {0, 1e6});
    if (scaling.factor < 1) {
      block.refuse("factor", "1 or more");
    }
    if (scaling.kind == RopeScaling::Kind::linear) {
      return;
    }
    scaling.low_freq_factor = block.number("low_freq_factor", 1.0, {0, 1e6});
    scaling.high_freq_factor = block.number("high_freq_factor", 4.0, {0, 1e6});
    scaling.original_max_positions = block.integer("original_max_position_embeddings", 8192, positions_range);
    if (scaling.low_freq_factor >= scaling.high_freq_factor) {
      block.problem("low_freq_factor", fmt::format("{} is not below high_freq_factor {}",
                                                   scaling.low_freq_factor, scaling.high_freq_factor));
    }
  }

  void read_window() {
    if (family_.window == Family::Window::none) {
      return;
    }
    const bool always = family_.window == Family::Window::always;
    auto window = keys_.optional_integer("sliding_window", positions_range);
    if (!keys_.present("sliding_window")) {
      window = 4096;
    }
    if (!always && !keys_.boolean("use_sliding_window", false)) {
      window.reset();
    }
    const std::int64_t first = keys_.integer("max_window_layers", 28, {0, positions_range.most});
    const std::int64_t full = always || !window ? (window ? 0 : spec_.layers) : std::min(first, spec_.layers);
    const std::int64_t windowed = keys_.has("layer_types") ? windowed_layers() : spec_.layers - full;
    if (windowed != 0 && windowed != spec_.layers) {
      return keys_.problem(keys_.has("layer_types") ? "layer_types" : "max_window_layers",
                           fmt::format("{} of {} layers have a sliding window: mixed layers are not built; "
                                       "allowed: all or none",
                                       windowed, spec_.layers));
    }
    if (windowed != 0 && !window) {
      return keys_.problem("layer_types", "has sliding_attention, but no sliding window is in force");
    }
    if (always && windowed == 0 && window) {
      return keys_.problem("layer_types",
                           "has full_attention only, but mistral uses sliding_window in every layer");
    }
    spec_.sliding_window = windowed != 0 ? window : std::nullopt;
  }

  /// Layers with a window by `layer_types`; with a wrong list, none.
  std::int64_t windowed_layers() {
    const nlohmann::json& types = root_["layer_types"];
    if (!types.is_array() || static_cast<std::int64_t>(types.size()) != spec_.layers) {
      keys_.refuse("layer_types", fmt::format("a list of {} names, one a layer", spec_.layers));
      return 0;
    }
    std::int64_t count = 0;
    for (const nlohmann::json& type : types) {
      if (type != "full_attention" && type != "sliding_attention") {
        keys_.problem("layer_types", "allowed: full_attention, sliding_attention");
        return 0;
      }
      count += type == "sliding_attention" ? 1 : 0;
    }
    return count;
  }

  void read_switches() {
    const bool attention_bias = family_.reads_attention_bias && keys_.boolean("attention_bias", false);
    spec_.qkv_bias = family_.always_qkv_bias || attention_bias;
    spec_.output_bias = attention_bias;
    spec_.mlp_bias = family_.reads_mlp_bias && keys_.boolean("mlp_bias", false);
    spec_.qk_norm = family_.qk_norm;
    if (const std::string act = keys_.text("hidden_act", "silu"); act != "silu") {
      keys_.problem("hidden_act", shown(act) + " is not built; allowed: silu");
    }
    if (keys_.has("attention_dropout") && keys_["attention_dropout"] != 0) {
      keys_.refuse("attention_dropout", "0 (dropout is not built)");
    }
  }

  void read_tied() {
    spec_.tied = keys_.boolean("tie_word_embeddings", false);
    if (!keys_.has("text_config") || !root_["text_config"].is_object()) {
      return;
    }
    KeyReader nested(root_["text_config"], source_ + ": text_config", problems_);
    const bool tied = nested.boolean("tie_word_embeddings", spec_.tied);
    if (keys_.present("tie_word_embeddings") && tied != spec_.tied) {
      nested.problem("tie_word_embeddings", "contradicts tie_word_embeddings outside");
    }
    spec_.tied = tied;
  }

  void read_tokens() {
    spec_.bos_token = keys_.optional_integer("bos_token_id", token_range);
    if (!keys_.present("bos_token_id")) {
      spec_.bos_token = family_.bos_token;
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
    const nlohmann::json& given = root_["eos_token_id"];
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

  void refuse_what_is_not_built() {
    if (keys_.has("quantization_config")) {
      keys_.problem("quantization_config", "quantized weights are not built");
    }
  }

  void check_count() {
    if (spec_.parameter_count() > most_parameters) {
      problems_.add(fmt::format("{}: the sizes make {} parameters; at most {} are planned for", source_,
                                spec_.parameter_count(), most_parameters));
    }
  }

  const nlohmann::json& root_;
  const Family& family_;
  const std::string& source_;
  Problems& problems_;
  KeyReader keys_;
  ModelSpec spec_;
};

/// Experts live under many names, at the root or one level down; a model that has them must not pass for a
/// dense one.
void refuse_experts(const nlohmann::json& object, const std::string& where, Problems& problems) {
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}) {
    if (object.contains(key) && !object[key].is_null() && object[key] != 0 && object[key] != 1) {
      problems.add(
          fmt::format("{}: {} is {}: mixture-of-experts models are not built yet; allowed: dense models",
                      where, key, shown(object[key].dump())));
    }
  }
  if (object.contains("text_config") && object["text_config"].is_object()) {
    refuse_experts(object["text_config"], where + ": text_config", problems);
  }
}

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

}  // namespace

ModelSpec spec_from_config(std::string_view json_text, const std::string& source) {
  const nlohmann::json root = parse_json(json_text, source);
  if (!root.is_object()) {
    throw RequestError(source + ": holds no JSON object");
  }
  Problems problems;
  const Family* family = read_family(root, source, problems);
  refuse_experts(root, source, problems);
  ModelSpec spec;
  if (family != nullptr) {
    spec = ConfigReader(root, *family, source, problems).read();
  }
  problems.raise();
  return spec;
}

ModelSpec spec_from_folder(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  return spec_from_config(read_file(file, most_config_bytes), file.string());
}

}  // namespace ndmesh::model
