#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ndmesh/cluster/cluster.h"
#include "ndmesh/job/job.h"

namespace ndmesh::cli {

/// What an inspected SOURCE stands for.
struct Source {
  std::string name;  ///< as the user wrote it
  job::Job job;      ///< of the file, or the defaults, under the overrides and `--mesh`
  std::optional<model::ModelSpec> model;
};

/// `words` are a SOURCE (job file, model folder, config.json, preset name or a size as 70B) and KEY=VALUE overrides, in any
/// order; without a SOURCE the model is what the overrides say, if they do. `mesh` is in MESH notation,
/// empty: the job's mesh. RequestError for what cannot be read.
Source read_source(const std::vector<std::string>& words, const std::string& mesh);

/// The cluster that a job names; this machine when it names none.
cluster::Cluster cluster_of(const job::Job& job);

/// The model of a source, for commands that need one. RequestError when there is none.
const model::ModelSpec& model_of(const Source& source);

}  // namespace ndmesh::cli
