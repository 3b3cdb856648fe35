#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ndmesh {

/// One node of a YAML document, as far as job and cluster files use YAML: no anchors, aliases or tags.
struct YamlNode {
  YamlNode();  // in yaml.cpp: a default here would need `entries` before a node is complete

  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string scalar;
  bool is_quoted = false;  ///< a quoted scalar is a text, whatever it looks like
  std::vector<YamlNode> items;
  std::vector<std::pair<std::string, YamlNode>> entries;
  int line = 0;  ///< counted from 1

  /// How a message shows the value: the scalar in quotes, "nothing", "a list", "a mapping".
  std::string shown_value() const;
};

/// Parses one document of any origin; an empty one is null. RequestError, with `source` and line, for what is
/// no YAML, a second document, more than a few levels, a key that is no text or is given twice, aliases and
/// tags.
YamlNode parse_yaml(const std::string& text, const std::string& source);

}  // namespace ndmesh
