#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ndmesh/base/yaml.h"
#include "ndmesh/job/job.h"

namespace ndmesh::job {

/// One key of a job, declared once (fields.cpp): parser, overrides, help, reference page and resolved job
/// follow.
struct Field {
  std::string key;   ///< dotted path
  std::string type;  ///< as shown in help
  std::string range;
  std::string help;
  std::function<std::string(const Job&)> get;      ///< the value as YAML
  std::function<void(Job&, const YamlNode&)> set;  ///< RequestError "is VALUE; allowed: ..." when refused
};

/// All keys, in the order of the sections.
const std::vector<Field>& fields();
/// nullptr when there is no such key.
const Field* find_field(std::string_view key);

struct Section {
  std::string name;
  std::string help;
};

/// All sections in order, those without keys included.
const std::vector<Section>& sections();
const Section* find_section(std::string_view name);

}  // namespace ndmesh::job
