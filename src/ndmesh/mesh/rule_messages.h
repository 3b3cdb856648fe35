#pragma once

#include <string>

#include "ndmesh/mesh/rules.h"

/// What the rules of rule_table.cpp say when they are broken: the offending numbers and the nearest legal
/// values.
namespace ndmesh::mesh {

/// KV heads of one tp rank.
std::int64_t local_kv_heads(const RuleInput& in);

std::string world_message(const RuleInput& in);
std::string heads_message(const RuleInput& in);
std::string kv_heads_message(const RuleInput& in);
std::string context_heads_message(const RuleInput& in);
std::string sequence_message(const RuleInput& in);
std::string dense_message(const RuleInput& in);
std::string experts_message(const RuleInput& in);
std::string expert_ranks_message(const RuleInput& in);
std::string batch_message(const RuleInput& in);
std::string stages_message(const RuleInput& in);
std::string interleaving_message(const RuleInput& in);

/// "mesh.KEY_size: SIZE, but RUNTIME WHAT": of the rules about the target runtime.
std::string runtime_message(const RuleInput& in, Axis axis, std::string_view what);
std::string expert_runtime_message(const RuleInput& in);
std::string equal_parts_message(const RuleInput& in);
std::string equal_stages_message(const RuleInput& in);
std::string zero_message(const RuleInput& in);

}  // namespace ndmesh::mesh
