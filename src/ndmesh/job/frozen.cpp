#include "ndmesh/job/frozen.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"

namespace ndmesh::job {
namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::vector<std::string> names_of(const model::ModelSpec& model) {
  std::vector<std::string> names;
  for (std::int64_t layer = 0; layer < model.total_layers(); ++layer) {
    for (const model::LayerParameter& parameter : model.layer_parameters(layer)) {
      names.push_back(parameter.spec.name);
    }
  }
  for (const model::ParameterSpec& end : model.end_parameters()) {
    names.push_back(end.name);
  }
  return names;
}

}  // namespace

bool is_frozen(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, std::string(name)); });
}

std::vector<std::string> frozen_problems(const Job& job, const model::ModelSpec& model) {
  const std::vector<std::string>& patterns = job.train.frozen;
  if (patterns.empty()) {
    return {};
  }
  Problems problems;
  const std::vector<std::string> names = names_of(model);
  for (const std::string& pattern : patterns) {
    if (std::none_of(names.begin(), names.end(), [&](const auto& name) { return matches(pattern, name); })) {
      problems.add(fmt::format(
          "train.frozen: {} is the name of no parameter; allowed: names as in `ndmesh inspect model`, with * "
          "for any characters, as in {}{}",
          pattern, names.front(), did_you_mean(pattern, names)));
    }
  }
  if (std::all_of(names.begin(), names.end(), [&](const auto& name) { return is_frozen(patterns, name); })) {
    problems.add(fmt::format("train.frozen: {} freezes every parameter; allowed: at least one is trained",
                             join(patterns)));
  }
  return problems.list();
}

}  // namespace ndmesh::job
