#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "ndmesh/base/error.h"
#include "ndmesh/base/file.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/job/field.h"
#include "ndmesh/job/job.h"

namespace ndmesh::job {
namespace {

constexpr std::int64_t most_job_bytes = 1 << 20;

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const Field& field : fields()) {
    names.push_back(field.key);
  }
  return names;
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const Section& section : sections()) {
    names.push_back(section.name);
  }
  return names;
}

/// "; did you mean KEY?": by the letters, or a key of the same name in another section.
std::string near_key(const std::string& key) {
  if (const std::string hint = did_you_mean(key, key_names()); !hint.empty()) {
    return hint;
  }
  const std::string last = key.substr(key.rfind('.') + 1);
  for (const Field& field : fields()) {
    const std::string name = field.key.substr(field.key.find('.') + 1);
    if (name == last || name == last + "_size") {
      return "; did you mean " + field.key + "?";
    }
  }
  return {};
}

class Reader {
 public:
  void read_document(const YamlNode& root, const std::string& source) {
    source_ = source;
    if (root.kind == YamlNode::Kind::null) {
      return;
    }
    if (root.kind != YamlNode::Kind::map) {
      problems_.add(source + ": holds " + root.shown_value() + "; allowed: a mapping of sections");
      return;
    }
    for (const auto& [name, section] : root.entries) {
      read_section(name, section);
    }
  }

  void read_override(const std::string& text) {
    const std::size_t equals = text.find('=');
    const std::string key = text.substr(0, equals);
    source_ = "override " + shown(text);
    if (equals == std::string::npos || (key.find('.') == std::string::npos && key != "cluster")) {
      problems_.add(source_ + ": allowed: SECTION.KEY=VALUE");
      return;
    }
    if (std::find(overridden_.begin(), overridden_.end(), key) != overridden_.end()) {
      problems_.add(source_ + ": " + key + " is overridden twice");
      return;
    }
    overridden_.push_back(key);
    try {
      read_key(key, parse_yaml(text.substr(equals + 1), source_));
    } catch (const RequestError& error) {
      problems_.add_all(error.problems());
    }
  }

  Job take() {
    check_model_source();
    problems_.raise();
    return std::move(job_);
  }

 private:
  void check_model_source() {
    std::vector<std::string> given;
    for (const auto& [key, value] :
         {std::pair("model.path", &job_.model.path), std::pair("model.preset", &job_.model.preset),
          std::pair("model.size", &job_.model.size)}) {
      if (!value->empty()) {
        given.emplace_back(key);
      }
    }
    if (given.size() > 1) {
      problems_.add(fmt::format("{} are both given; keep one of them (the override {}=\"\" unsets one)",
                                fmt::join(given, " and "), given.front()));
    }
  }

  void read_section(const std::string& name, const YamlNode& section) {
    if (name == "cluster") {
      return set_cluster(section);
    }
    if (find_section(name) == nullptr) {
      return refuse_section(name, section);
    }
    if (section.kind == YamlNode::Kind::null) {
      return;
    }
    if (section.kind != YamlNode::Kind::map) {
      problems_.add(place(section) + name + " is " + section.shown_value() + "; allowed: a mapping of keys");
      return;
    }
    for (const auto& [key, value] : section.entries) {
      read_key(fmt::format("{}.{}", name, key), value);
    }
  }

  void refuse_section(const std::string& name, const YamlNode& section) {
    if (find_field(name) != nullptr) {
      const std::size_t dot = name.find('.');
      problems_.add(fmt::format("{}{} stands at the top; write {}: {{{}: ...}}", place(section), name,
                                name.substr(0, dot), name.substr(dot + 1)));
      return;
    }
    problems_.add(place(section) + "unknown section " + shown(name) + did_you_mean(name, section_names()) +
                  "; sections: " + join(section_names()));
  }

  void read_key(const std::string& key, const YamlNode& value) {
    const std::string section = key.substr(0, key.find('.'));
    if (section == "cluster") {
      return key == section ? set_cluster(value) : set_cluster_key(key, value);
    }
    const Field* field = find_field(key);
    if (field == nullptr) {
      problems_.add(place(value) + "unknown key " + shown(key) + near_key(key));
      return;
    }
    set(*field, value);
  }

  void set(const Field& field, const YamlNode& value) {
    const std::string& key = field.key;
    try {
      field.set(job_, value);
    } catch (const RequestError& error) {
      for (const std::string& problem : error.problems()) {
        const bool names_key = problem.starts_with(key);
        problems_.add(fmt::format("{}{}{}", place(value), names_key ? "" : key + " ", problem));
      }
    }
    note(key);
  }

  void note(const std::string& key) {
    if (!job_.is_given(key)) {
      job_.given.push_back(key);
    }
  }

  void set_cluster(const YamlNode& value) {
    const bool is_empty = value.kind == YamlNode::Kind::scalar && value.scalar.empty();
    cluster_ = is_empty ? YamlNode() : value;
    set(*find_field("cluster"), value);
  }

  /// cluster.nodes=4 changes one key of a mapping; the keys are the cluster reader's to check.
  void set_cluster_key(const std::string& key, const YamlNode& value) {
    if (cluster_.kind != YamlNode::Kind::map && cluster_.kind != YamlNode::Kind::null) {
      problems_.add(place(value) + key + ": cluster is " + cluster_.shown_value() +
                    ", not a mapping; allowed: cluster=... as a whole");
      return;
    }
    cluster_.kind = YamlNode::Kind::map;
    const std::string name = key.substr(key.find('.') + 1);
    const auto same = std::find_if(cluster_.entries.begin(), cluster_.entries.end(),
                                   [&](const auto& entry) { return entry.first == name; });
    if (same == cluster_.entries.end()) {
      cluster_.entries.emplace_back(name, value);
    } else {
      same->second = value;
    }
    set(*find_field("cluster"), cluster_);
  }

  std::string place(const YamlNode& node) const {
    const bool in_file = !source_.starts_with("override ");
    return in_file ? fmt::format("{}, line {}: ", source_, node.line) : source_ + ": ";
  }

  Job job_;
  YamlNode cluster_;
  Problems problems_;
  std::string source_;
  std::vector<std::string> overridden_;
};

}  // namespace

bool Job::is_given(std::string_view key) const {
  return std::find(given.begin(), given.end(), key) != given.end();
}

Job parse_job(const std::string& yaml, const std::string& source, const std::vector<std::string>& overrides) {
  Reader reader;
  reader.read_document(parse_yaml(yaml, source), source);
  for (const std::string& text : overrides) {
    reader.read_override(text);
  }
  Job job = reader.take();
  job.name = std::filesystem::path(source).stem().string();
  return job;
}

Job read_job(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  return parse_job(read_file(file, most_job_bytes), file.string(), overrides);
}

std::string resolved_yaml(const Job& job) {
  std::string text;
  std::string section;
  for (const Field& field : fields()) {
    const std::size_t dot = field.key.find('.');
    if (dot == std::string::npos) {
      text += field.key + ": " + field.get(job) + "\n";
      continue;
    }
    if (const std::string name = field.key.substr(0, dot); name != section) {
      section = name;
      text += section + ":\n";
    }
    text += "  " + field.key.substr(dot + 1) + ": " + field.get(job) + "\n";
  }
  return text;
}

}  // namespace ndmesh::job
