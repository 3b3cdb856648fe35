#pragma once

#include <span>
#include <string>

#include "ndmesh/mesh/rules.h"

namespace ndmesh::mesh {

/// A rule with all there is to it. `holds` and `message` are called only where `applies`; sizes are at
/// least 1.
struct RuleEntry {
  Rule rule;
  bool (*applies)(const RuleInput&);
  bool (*holds)(const RuleInput&);
  std::string (*message)(const RuleInput&);
};

/// The one table of validity rules.
std::span<const RuleEntry> rule_table();

}  // namespace ndmesh::mesh
