#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ndmesh::plan {

/// Whose bytes, overlaps and legal meshes a plan counts with: plan.runtime.
enum class Runtime : std::uint8_t { ndmesh, megatron, torchtitan, deepspeed, accelerate };

std::string_view name_of(Runtime runtime);
/// RequestError with the list and the nearest.
Runtime runtime_from_name(std::string_view name);
std::vector<std::string> runtime_names();

}  // namespace ndmesh::plan
