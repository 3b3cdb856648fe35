#include <stdexcept>

#include "fuzz/target.h"
#include "ndmesh/job/job.h"

/// A job file; as resolved it reads back to the same job.
void ndmesh::fuzz::one_input(std::string_view bytes) {
  const job::Job job = job::parse_job(std::string(bytes), "job.yaml", {});
  const std::string resolved = job::resolved_yaml(job);
  if (job::resolved_yaml(job::parse_job(resolved, "resolved.yaml", {})) != resolved) {
    throw std::logic_error("a resolved job reads back to another: " + resolved);
  }
}
