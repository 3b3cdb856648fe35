#include "ndmesh/cli/source.h"

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/base/file.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/model/config.h"

namespace ndmesh::cli {
namespace {

constexpr std::int64_t most_config_bytes = 4 << 20;

bool is_override(const std::string& word) {
  const std::size_t equals = word.find('=');
  return equals != std::string::npos && (word.find('.') < equals || word.starts_with("cluster="));
}

bool is_preset(const std::string& name) {
  const std::vector<std::string> names = model::preset_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

Source read_named(const std::string& name, const std::vector<std::string>& overrides) {
  if (is_preset(name)) {
    return {name, job::parse_job("", name, overrides), model::preset(name)};
  }
  const std::filesystem::path path = name;
  if (std::filesystem::is_directory(path)) {
    return {name, job::parse_job("", name, overrides), model::spec_from_folder(path)};
  }
  if (!std::filesystem::exists(path) && model::is_size(name)) {
    return {name, job::parse_job("", name, overrides), model::estimate(name)};
  }
  if (!std::filesystem::exists(path)) {
    throw RequestError(shown(name) + " is no job file, no model folder, no preset and no size; presets: " +
                       join(model::preset_names()) + did_you_mean(name, model::preset_names()));
  }
  if (path.extension() == ".json") {
    const std::string text = read_file(path, most_config_bytes);
    return {name, job::parse_job("", name, overrides), model::spec_from_config(text, name)};
  }
  Source source = {name, job::read_job(path, overrides), std::nullopt};
  source.model = job::model_of(source.job);
  return source;
}

Source read_overrides(const std::vector<std::string>& overrides) {
  Source source = {"", job::parse_job("", "", overrides), std::nullopt};
  const job::ModelSection& model = source.job.model;
  if (!model.path.empty() || !model.preset.empty() || !model.size.empty()) {
    source.model = job::model_of(source.job);
  }
  return source;
}

}  // namespace

Source read_source(const std::vector<std::string>& words, const std::string& mesh) {
  std::vector<std::string> names;
  std::vector<std::string> overrides;
  for (const std::string& word : words) {
    (is_override(word) ? overrides : names).push_back(word);
  }
  if (names.size() > 1) {
    throw RequestError("one SOURCE is inspected at a time, not " + join(names) +
                       "; an override has the form SECTION.KEY=VALUE");
  }
  Source source = names.empty() ? read_overrides(overrides) : read_named(names.front(), overrides);
  if (!mesh.empty()) {
    source.job.mesh = mesh::parse_mesh(mesh);
  }
  return source;
}

cluster::Cluster cluster_of(const job::Job& job) {
  return job.cluster.empty() ? cluster::detect_cluster() : cluster::parse_cluster(job.cluster, "cluster");
}

const model::ModelSpec& model_of(const Source& source) {
  if (!source.model) {
    throw RequestError("a SOURCE is needed: a job file, a model folder, a preset or a size; presets: " +
                       join(model::preset_names()));
  }
  return *source.model;
}

}  // namespace ndmesh::cli
