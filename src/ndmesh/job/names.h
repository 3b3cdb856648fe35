#pragma once

#include <string>
#include <string_view>

#include "ndmesh/base/yaml_values.h"
#include "ndmesh/job/job.h"

/// Values of a job as they are written in it.
namespace ndmesh::job {

std::string_view name_of(Offload offload);
std::string_view name_of(ContextKind kind);
std::string_view name_of(OptimizerName name);
std::string_view name_of(Recompute::Policy policy);
std::string_view name_of(WeightFormat format);
std::string_view name_of(KvFormat format);
std::string_view name_of(KvPolicy policy);
using ndmesh::yaml_of;
/// "full", "{every: 2}".
std::string yaml_of(const Recompute& recompute);
std::string yaml_of(const StageLayers& cut);

}  // namespace ndmesh::job
