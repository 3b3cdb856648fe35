#pragma once

#include "ndmesh/cli/command.h"

namespace ndmesh::cli {

/// `ndmesh inspect schedule`: draws who does what when, with the bubble and what each rank holds; or lists the
/// actions of one rank. The shape comes from a job or a kind, and options; what is no schedule is refused with
/// every problem.
void register_inspect_schedule(CLI::App& inspect, Chosen& chosen);

}  // namespace ndmesh::cli
