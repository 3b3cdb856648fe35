#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/file.h"
#include "ndmesh/cluster/draft.h"

namespace ndmesh::cluster {
namespace {

constexpr std::int64_t most_file_bytes = 1 << 20;

/// Whether a text means a file rather than devices.
bool is_file_name(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".yaml") || text.ends_with(".yml");
}

/// A short form or a mapping.
Cluster cluster_of(const YamlNode& node, const std::string& source) {
  try {
    if (node.kind == YamlNode::Kind::scalar) return completed(read_short_form(node.scalar));
    if (node.kind == YamlNode::Kind::map) return completed(read_keys(node));
    throw RequestError("is " + node.shown_value() +
                       "; allowed: devices as in 8xH100-SXM, a mapping, or a file");
  } catch (const RequestError& error) {
    std::vector<std::string> problems;
    for (const std::string& problem : error.problems())
      problems.push_back(fmt::format("{}{}{}", source, problem.starts_with("is ") ? " " : ": ", problem));
    throw RequestError(problems);
  }
}

}  // namespace

Cluster parse_cluster(const std::string& yaml, const std::string& source) {
  const YamlNode node = parse_yaml(yaml, source);
  if (node.kind == YamlNode::Kind::scalar && is_file_name(node.scalar)) return read_cluster(node.scalar);
  return cluster_of(node, source);
}

Cluster read_cluster(const std::filesystem::path& file) {
  const std::string source = file.string();
  return cluster_of(parse_yaml(read_file(file, most_file_bytes), source), source);
}

}  // namespace ndmesh::cluster
