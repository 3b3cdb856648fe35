#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/base/file.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/job/field.h"
#include "ndmesh/job/job.h"

namespace ndmesh::job {
namespace {

constexpr std::int64_t most_job_bytes = 1 << 20;

/// Sections that commands of later parts read; what stands in them is theirs to check.
bool is_unread(std::string_view section) {
  return section == "cluster" || section == "plan";
}

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
    if (equals == std::string::npos || key.find('.') == std::string::npos) {
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
    if (!job_.model.path.empty() && !job_.model.preset.empty()) {
      problems_.add(
          "model.path and model.preset are both given; keep one of them (the override model.path=\"\" unsets "
          "a path)");
    }
    problems_.raise();
    return std::move(job_);
  }

 private:
  void read_section(const std::string& name, const YamlNode& section) {
    if (is_unread(name)) {
      return note_unread(name, section);
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
      read_key(name + "." + key, value);
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
    if (is_unread(section)) {
      return note(key);
    }
    const Field* field = find_field(key);
    if (field == nullptr) {
      const bool empty_section = section == "tensor" || section == "adapter";
      problems_.add(place(value) + "unknown key " + shown(key) +
                    (empty_section ? ": " + find_section(section)->help : near_key(key)));
      return;
    }
    try {
      field->set(job_, value);
    } catch (const RequestError& error) {
      for (const std::string& problem : error.problems()) {
        const bool names_key = problem.starts_with(key);
        problems_.add(place(value) + (names_key ? problem : key + " " + problem));
      }
    }
    if (std::find(job_.given.begin(), job_.given.end(), key) == job_.given.end()) {
      job_.given.push_back(key);
    }
  }

  void note_unread(const std::string& name, const YamlNode& section) {
    if (section.kind != YamlNode::Kind::map || name == "cluster") {
      return note(name);
    }
    for (const auto& entry : section.entries) {
      note(name + "." + entry.first);
    }
  }

  void note(const std::string& key) {
    job_.given.push_back(key);
    job_.warnings.push_back(key + " is not read by this command");
  }

  std::string place(const YamlNode& node) const {
    const bool in_file = !source_.starts_with("override ");
    return in_file ? fmt::format("{}, line {}: ", source_, node.line) : source_ + ": ";
  }

  Job job_;
  Problems problems_;
  std::string source_;
  std::vector<std::string> overridden_;
};

}  // namespace

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
    if (const std::string name = field.key.substr(0, dot); name != section) {
      section = name;
      text += section + ":\n";
    }
    text += "  " + field.key.substr(dot + 1) + ": " + field.get(job) + "\n";
  }
  return text;
}

}  // namespace ndmesh::job
