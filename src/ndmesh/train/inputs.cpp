#include "ndmesh/train/inputs.h"

#include <fmt/format.h>

#include "ndmesh/base/error.h"
#include "ndmesh/model/config.h"

namespace ndmesh::train {
namespace {

/// `key` names the files in messages.
std::unique_ptr<TokenFiles> open_tokens(const job::Job& job, const std::vector<std::string>& files,
                                        bool shuffle, const std::string& key, std::int64_t vocab) {
  auto tokens = std::make_unique<TokenFiles>(files, job.data.format);
  try {
    const SampleOrder order(tokens->size(), job.batch.seq_len, shuffle, 0);
  } catch (const RequestError& error) {
    throw RequestError(key + ": " + error.what());
  }
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

/// A folder whose weights are in a format that is not read must not train from fresh values as if it had none.
void refuse_other_checkpoints(const std::filesystem::path& folder) {
  std::error_code ignored_error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored_error)) {
    const std::string extension = entry.path().extension().string();
    for (const char* other : {".bin", ".pt", ".pth", ".ckpt", ".gguf"}) {
      if (extension == other) {
        throw RequestError(
            fmt::format("model.path: {} holds weights as {}, but only safetensors are read; convert them, "
                        "or give a folder with config.json alone to start from fresh values",
                        folder.string(), entry.path().filename().string()));
      }
    }
  }
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

/// Stages of the layers' measured seconds, in the place of the wish for them: whoever reads the job sees what runs.
void measure_stages(job::Job& job, Inputs& inputs) {
  if (!job.pipeline.measure || job.mesh.pp == 1) {
    return;
  }
  inputs.measured = measure_layers(job, inputs.model);
  job.pipeline.layers = {job::StageLayers::Policy::given,
                         inputs.measured->cut(job::pipeline_shape(job).stages())};
  job.pipeline.measure = false;
}

}  // namespace

Inputs open_inputs(job::Job job) {
  Inputs inputs;
  inputs.model = job::model_of(job);
  job::check_trainable(job, inputs.model);
  Problems problems;
  gather_problems(problems, [&] {
    inputs.tokens = open_tokens(job, job.data.files, job.data.shuffle, "data.files", inputs.model.vocab);
  });
  if (!job.data.eval_files.empty()) {
    gather_problems(problems, [&] {
      inputs.evaluation =
          open_tokens(job, job.data.eval_files, /*shuffle=*/false, "data.eval_files", inputs.model.vocab);
    });
  }
  if (!job.model.path.empty()) {
    gather_problems(problems, [&] {
      if (holds_weights(job.model.path)) {
        inputs.weights = std::make_unique<ModelWeights>(job.model.path, inputs.model);
      } else {
        refuse_other_checkpoints(job.model.path);
      }
    });
  }
  problems.raise();
  measure_stages(job, inputs);
  inputs.job = std::move(job);
  return inputs;
}

}  // namespace ndmesh::train
