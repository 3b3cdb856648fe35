#include "ndmesh/train/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "ndmesh/base/error.h"
#include "ndmesh/model/config.h"

namespace ndmesh::train {
namespace {

std::unique_ptr<TokenFiles> open_tokens(const job::Job& job, const std::vector<std::string>& files,
                                        const std::string& key, std::int64_t vocab) {
  auto tokens = std::make_unique<TokenFiles>(files, job.data.format);
  const SampleOrder order(tokens->size(), job.batch.seq_len, job.data.shuffle,
                          0);  // throws when there is too little
  const std::int64_t largest = tokens->largest_token();
  if (largest >= vocab) {
    throw RequestError(
        fmt::format("{}: token {} occurs, but the model's vocabulary has only {} entries; is data.format "
                    "right, and were the tokens made for this model?",
                    key, largest, vocab));
  }
  return tokens;
}

bool holds_weights(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "model.safetensors.index.json")) {
    return true;
  }
  std::error_code ignored_error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored_error)) {
    if (entry.path().extension() == ".safetensors") {
      return true;
    }
  }
  return false;
}

/// Runs `action`; what it refuses is gathered.
template <class Action>
void gather_problems(Problems& problems, const Action& action) {
  try {
    action();
  } catch (const RequestError& error) {
    problems.add_all(error.problems());
  }
}

}  // namespace

Inputs open_inputs(job::Job job) {
  Inputs inputs;
  inputs.model = job::model_of(job);
  job::check_trainable(job, inputs.model);
  Problems problems;
  gather_problems(
      problems, [&] { inputs.tokens = open_tokens(job, job.data.files, "data.files", inputs.model.vocab); });
  if (!job.data.eval_files.empty()) {
    gather_problems(problems, [&] {
      inputs.evaluation = open_tokens(job, job.data.eval_files, "data.eval_files", inputs.model.vocab);
    });
  }
  if (!job.model.path.empty() && holds_weights(job.model.path)) {
    gather_problems(problems,
                    [&] { inputs.weights = std::make_unique<ModelWeights>(job.model.path, inputs.model); });
  }
  problems.raise();
  inputs.job = std::move(job);
  return inputs;
}

std::int64_t threads_per_rank(const job::Job& job) {
  if (job.run.threads > 0) {
    return job.run.threads;
  }
  const std::int64_t world = mesh::Mesh(job.mesh, job.mesh_order).world();
  return std::max<std::int64_t>(1, std::thread::hardware_concurrency() / world);
}

}  // namespace ndmesh::train
