#include "ndmesh/cli/plan_parts_json.h"

#include <fmt/format.h>

namespace ndmesh::cli {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Json mesh_json(const mesh::MeshSizes& sizes) {
  Json json = Json::object();
  for (const mesh::Axis axis : mesh::all_axes) {
    json[std::string(name_of(axis))] = sizes.size(axis);
  }
  json["ep"] = sizes.ep;
  json["etp"] = sizes.etp;
  return json;
}

Json order_json(const mesh::AxisOrder& order) {
  Json json = Json::array();
  for (const mesh::Axis axis : order) {
    json.push_back(name_of(axis));
  }
  return json;
}

Json memory_json(const MemoryBytes& bytes) {
  Json json = Json::object();
  for (std::size_t i = 0; i < memory_category_count; ++i) {
    json[std::string(memory_category_names[i])] = bytes.by_category[i];
  }
  return json;
}

Json warnings_json(const std::vector<plan::Warning>& warnings) {
  Json json = Json::array();
  for (const plan::Warning& warning : warnings) {
    json.push_back({{"name", warning.name}, {"text", warning.text}});
  }
  return json;
}

void print_json(const Json& document) {
  fmt::print("{}\n", document.dump(2, ' ', true, Json::error_handler_t::replace));
}

}  // namespace ndmesh::cli
