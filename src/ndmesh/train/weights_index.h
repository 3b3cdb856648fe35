#pragma once

#include <map>
#include <string>
#include <string_view>

namespace ndmesh::train {

/// Which file of a sharded checkpoint holds which tensor.
using WeightMap = std::map<std::string, std::string>;

/// Reads model.safetensors.index.json, of any origin: every tensor names a *.safetensors file of the same folder.
/// RequestError with `source` and every tensor that does not.
WeightMap parse_weights_index(std::string_view json, const std::string& source);

}  // namespace ndmesh::train
