#include <fmt/format.h>

#include "ndmesh/base/error.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/job/field.h"
#include "ndmesh/job/job.h"

namespace ndmesh::job {
namespace {

std::string section_of(const std::string& key) {
  return key.substr(0, key.find('.'));
}

/// A cell of a table in Markdown.
std::string cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) {
    text.insert(at, 1, '\\');
  }
  return text;
}

}  // namespace

std::vector<KeyHelp> all_keys() {
  const Job initial;
  std::vector<KeyHelp> keys;
  for (const Field& field : fields()) {
    keys.push_back({field.key, field.type, field.get(initial), field.range, field.help});
  }
  return keys;
}

std::vector<KeyHelp> help_for(const std::string& key) {
  std::vector<KeyHelp> found;
  std::vector<std::string> names;
  for (const KeyHelp& entry : all_keys()) {
    names.push_back(entry.key);
    if (entry.key == key || section_of(entry.key) == key) {
      found.push_back(entry);
    }
  }
  if (found.empty() && find_section(key) == nullptr) {
    for (const Section& section : sections()) {
      names.push_back(section.name);
    }
    throw RequestError("no job key or section is named " + shown(key) + did_you_mean(key, names));
  }
  return found;
}

std::string reference_page() {
  std::string page =
      "# Job reference\n\n"
      "Every key of a job file, as `ndmesh help KEY` shows it. On the command line `SECTION.KEY=VALUE` "
      "overrides one\n"
      "key. This page is generated: `ndmesh help --reference`.\n";
  for (const Section& section : sections()) {
    page += fmt::format("\n## {}\n\n{}\n", section.name, section.help);
    const std::vector<KeyHelp> keys = help_for(section.name);
    if (!keys.empty()) {
      page += "\n| key | type | default | range | meaning |\n|---|---|---|---|---|\n";
    }
    for (const KeyHelp& key : keys) {
      page += fmt::format("| `{}` | {} | `{}` | {} | {} |\n", key.key, key.type, key.initial, cell(key.range),
                          cell(key.help));
    }
  }
  return page;
}

}  // namespace ndmesh::job
