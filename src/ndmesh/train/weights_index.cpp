#include "ndmesh/train/weights_index.h"

#include <fmt/format.h>

#include "ndmesh/base/error.h"
#include "ndmesh/base/json.h"
#include "ndmesh/base/text.h"

namespace ndmesh::train {
namespace {

bool is_plain_name(const std::string& name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

WeightMap parse_weights_index(std::string_view json, const std::string& source) {
  const nlohmann::json index = parse_json(json, source);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw RequestError(
        fmt::format("{}: has no object weight_map that says which file holds which tensor", source));
  }
  WeightMap map;
  Problems problems;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    if (shard.is_string() && is_plain_name(shard.get_ref<const std::string&>())) {
      map.emplace(tensor, shard.get<std::string>());
    } else {
      problems.add(fmt::format("{}: tensor {} must name a *.safetensors file of the same folder, not {}",
                               source, shown(tensor), shown(shard.dump())));
    }
  }
  problems.raise();
  return map;
}

}  // namespace ndmesh::train
