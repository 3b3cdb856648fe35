#pragma once

#include "ndmesh/cli/command.h"

namespace ndmesh::cli {

void register_train(CLI::App& app, Chosen& chosen);
void register_parity(CLI::App& app, Chosen& chosen);
void register_generate(CLI::App& app, Chosen& chosen);

/// Runs `action`, for commands that use libtorch: its errors are shown without their backtraces. When a rank is
/// left behind, stuck, its thread cannot be ended, so the message is given and the process ends here, with
/// `failed`.
int with_libtorch(const std::function<int()>& action);

}  // namespace ndmesh::cli
