#include "ndmesh/plan/profile/constants.h"

#include <algorithm>
#include <stdexcept>

#include "ndmesh/base/text.h"

namespace ndmesh::plan {

extern const std::string_view constants_table;  // constants.csv

namespace {

struct TableRow {
  Constant constant;
  std::string architecture;  ///< or the beginning of a device's name; "*": any
  std::string runtime;       ///< "*": any
};

std::vector<TableRow> read_table() {
  std::vector<TableRow> rows;
  const std::vector<std::string> lines = split(constants_table, '\n');
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> cells = split(lines[i], ',');
    if (cells.size() != 7) {
      continue;  // the end of the file
    }
    rows.push_back({.constant = {.name = cells[0],
                                 .unit = cells[3],
                                 .value = std::stod(cells[4]),
                                 .spread = std::stod(cells[5]),
                                 .origin = cells[6]},
                    .architecture = cells[1],
                    .runtime = cells[2]});
  }
  return rows;
}

/// Whether a row of the table speaks of the device: "Blackwell Ultra" is a Blackwell, "H100-SXM" an H100.
bool speaks_of(std::string_view family, const cluster::Device& device) {
  return family == "*" || device.architecture.starts_with(family) || device.name.starts_with(family);
}

template <class List>
auto& find(List& list, std::string_view name) {
  const auto found = std::ranges::find(list, name, &Constant::name);
  if (found == list.end()) {
    throw std::out_of_range("no constant " + std::string(name));
  }
  return found->value;
}

}  // namespace

double Constants::operator[](std::string_view name) const {
  return find(list, name);
}

double& Constants::at(std::string_view name) {
  return find(list, name);
}

Constants constants_for(const cluster::Cluster& cluster, std::string_view runtime) {
  static const std::vector<TableRow> table = read_table();
  Constants chosen;
  for (const TableRow& row : table) {
    const bool runs = row.runtime == "*" || row.runtime == runtime;
    if (!runs || !speaks_of(row.architecture, cluster.device)) {
      continue;
    }
    const auto known = std::ranges::find(chosen.list, row.constant.name, &Constant::name);
    if (known == chosen.list.end()) {
      chosen.list.push_back(row.constant);
    } else {
      *known = row.constant;  // later rows are more special
    }
  }
  return chosen;
}

Constants constants_for(const Problem& problem) {
  return constants_for(problem.cluster, problem.profile.name);
}

}  // namespace ndmesh::plan
