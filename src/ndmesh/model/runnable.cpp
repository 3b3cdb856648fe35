#include <fmt/format.h>

#include "ndmesh/base/text.h"
#include "ndmesh/model/config.h"
#include "ndmesh/model/family.h"
#include "ndmesh/model/parameter_names.h"

namespace ndmesh::model {
namespace {

/// Parts of the model that nn/ has no modules for.
std::vector<std::string> unbuilt_parts(const ModelSpec& spec) {
  std::vector<std::string> parts;
  const auto name = [&](bool has, const char* part) {
    if (has) {
      parts.emplace_back(part);
    }
  };
  name(spec.estimated(), "a model of which only the size is known");
  name(spec.experts.has_value(), "routed experts");
  name(spec.latent.has_value(), "latent attention");
  name(spec.mtp_layers > 0, "multi-token prediction");
  name(names_of(spec.family).qkv_by_head, "query, key and value that are fused by head");
  name(spec.attention_sinks, "attention sinks");
  return parts;
}

}  // namespace

std::vector<std::string> unrunnable_reasons(const ModelSpec& spec) {
  std::vector<std::string> reasons;
  const Family* family = find_family(spec.family);
  const std::vector<std::string> parts = unbuilt_parts(spec);
  if (family == nullptr || !family->runs) {
    reasons.push_back(fmt::format("model: family {} is planned, not run{}; allowed: {}", spec.family,
                                  parts.empty() ? "" : "; not built yet for running: " + join(parts),
                                  join(runnable_families())));
  } else {
    for (const std::string& part : parts) {
      reasons.push_back(fmt::format("model: {} (model_type {}) {} not built yet for running", part,
                                    spec.family, part.ends_with('s') ? "are" : "is"));
    }
  }
  for (const std::string& what : spec.planned_only) {
    reasons.push_back("model: " + what);
  }
  return reasons;
}

}  // namespace ndmesh::model
