#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/model/config_parts.h"

namespace ndmesh::model {
namespace {

const std::vector<std::string> runnable_kinds = {"default", "linear", "llama3"};
const std::vector<std::string> planned_kinds = {"dynamic", "longrope", "yarn"};

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

/// `partial_rotary_factor`, at the root or in a block.
void take_rotary_factor(ConfigParts& config, KeyReader& keys) {
  if (!keys.present("partial_rotary_factor")) {
    return;
  }
  const double factor = keys.number("partial_rotary_factor", 1.0, {0, 1});
  if (!config.family.reads_rotary_factor) {
    if (factor != 1.0) {
      config.only_planned("partial_rotary_factor", "is not built; allowed: 1.0");
    }
    return;
  }
  config.spec.rotary_factor = factor;
  if (const std::int64_t dim = config.spec.rotary_dim(); dim < 2 || dim % 2 != 0) {
    keys.problem("partial_rotary_factor",
                 fmt::format("{} of head size {} is {} numbers; allowed: an even number of them, 2 or more",
                             factor, config.spec.head_dim, dim));
  }
}

/// `rope_scaling` or `rope_parameters`.
class RopeBlock {
 public:
  RopeBlock(ConfigParts& config, const std::string& name)
      : config_(config), block_(config.root[name], config.source + ": " + name, config.problems) {}

  void read() {
    refuse_unknown_keys();
    const double theta = block_.number("rope_theta", config_.spec.rope_theta, {0, 1e18});
    if (config_.keys.present("rope_theta") && theta != config_.spec.rope_theta) {
      block_.problem("rope_theta",
                     fmt::format("{} differs from rope_theta {} outside", theta, config_.spec.rope_theta));
    }
    config_.spec.rope_theta = theta;
    take_rotary_factor(config_, block_);
    read_kind();
  }

 private:
  void refuse_unknown_keys() {
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
    for (const std::string& key : block_.keys()) {
      if (!contains(known, key)) {
        block_.problem(shown(key), "unknown key" + did_you_mean(key, known));
      }
    }
  }

  void read_kind() {
    const std::string new_name = block_.text("rope_type", "");
    const std::string old_name = block_.text("type", "");
    if (!new_name.empty() && !old_name.empty() && new_name != old_name) {
      return block_.problem("type", shown(old_name) + " contradicts rope_type " + shown(new_name));
    }
    const std::string kind = new_name.empty() ? old_name : new_name;
    const std::string not_built = shown(kind) + " is not built; allowed: " + join(runnable_kinds);
    if (kind == "default") {
      return;
    }
    if (kind.empty()) {
      if (block_.present("factor")) {
        block_.problem("rope_type", "is missing; allowed: " + join(runnable_kinds));
      }
    } else if (contains(planned_kinds, kind)) {
      config_.only_planned("rope_type", not_built);
    } else if (contains(runnable_kinds, kind)) {
      config_.spec.rope_scaling.kind =
          kind == "linear" ? RopeScaling::Kind::linear : RopeScaling::Kind::llama3;
      read_numbers();
    } else {
      block_.problem("rope_type", not_built + "; for planning also " + join(planned_kinds));
    }
  }

  void read_numbers() {
    RopeScaling& scaling = config_.spec.rope_scaling;
    std::vector<std::string> needed = {"factor"};
    if (scaling.kind == RopeScaling::Kind::llama3) {
      needed.insert(needed.end(),
                    {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
    }
    for (const std::string& key : needed) {
      if (!block_.present(key)) {
        block_.problem(key, "is missing");
      }
    }
    scaling.factor = block_.number("factor", 1.0, {0, 1e6});
    if (scaling.factor < 1) {
      block_.refuse("factor", "1 or more");
    }
    if (scaling.kind == RopeScaling::Kind::linear) {
      return;
    }
    scaling.low_freq_factor = block_.number("low_freq_factor", 1.0, {0, 1e6});
    scaling.high_freq_factor = block_.number("high_freq_factor", 4.0, {0, 1e6});
    scaling.original_max_positions =
        block_.integer("original_max_position_embeddings", 8192, positions_range);
    if (scaling.low_freq_factor >= scaling.high_freq_factor) {
      block_.problem("low_freq_factor", fmt::format("{} is not below high_freq_factor {}",
                                                    scaling.low_freq_factor, scaling.high_freq_factor));
    }
  }

  ConfigParts& config_;
  KeyReader block_;
};

void read_rope_block(ConfigParts& config, const std::string& name) {
  if (!config.root[name].is_object()) {
    return config.keys.refuse(name, "an object or null");
  }
  RopeBlock(config, name).read();
}

}  // namespace

void read_rope(ConfigParts& config) {
  KeyReader& keys = config.keys;
  config.spec.rope_theta = keys.number("rope_theta", config.family.rope_theta, {0, 1e18});
  const bool both = keys.has("rope_scaling") && keys.has("rope_parameters");
  if (both) {
    keys.problem("rope_scaling", "is given beside rope_parameters; keep one of them");
  } else if (keys.has("rope_scaling")) {
    read_rope_block(config, "rope_scaling");
  } else if (keys.has("rope_parameters")) {
    read_rope_block(config, "rope_parameters");
  }
  take_rotary_factor(config, keys);
  if (config.family.rope_local_theta) {
    config.spec.rope_local_theta =
        keys.number("rope_local_base_freq", *config.family.rope_local_theta, {0, 1e18});
  }
}

}  // namespace ndmesh::model
