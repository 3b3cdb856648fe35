#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ndmesh/job/job.h"

namespace ndmesh::job {

/// Whether one of `patterns` (train.frozen) stands for the parameter `name`. In a pattern `*` stands for any characters,
/// dots included, and `?` for one.
bool is_frozen(const std::vector<std::string>& patterns, std::string_view name);

/// What is wrong with train.frozen: patterns that stand for no parameter of `model`, or nothing left to train.
std::vector<std::string> frozen_problems(const Job& job, const model::ModelSpec& model);

}  // namespace ndmesh::job
