#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>

#include "ndmesh/comm/world.h"
#include "ndmesh/measure/host_use.h"
#include "ndmesh/train/inputs.h"

namespace ndmesh::train {

/// How a run talks to whoever started it. Callbacks come on rank 0's thread.
struct RunOptions {
  std::filesystem::path folder;  ///< run folder; exists
  const std::atomic<bool>* stop =
      nullptr;  ///< set from outside: finish the running step, write the model, return
  std::function<void(const std::string&)> say;  ///< lines for people: steps, evaluation, what was written
};

struct RunSummary {
  std::int64_t steps = 0;  ///< done
  bool interrupted = false;
  double last_loss = 0;
  MemoryBytes predicted;            ///< of the rank predicted to need most
  MemoryBytes counted;              ///< of the last step, of the rank that needed most
  std::int64_t predicted_host = 0;  ///< host memory of the rank predicted to need most
  measure::HostUse counted_host;    ///< of the last step
};

/// Trains as the job says on rank threads: writes job.yaml, record.jsonl and model/ into the run folder.
/// RunError when it fails while running.
RunSummary run_training(const Inputs& inputs, const RunOptions& options);

/// Limits of the job's `run` section.
comm::Limits limits_of(const job::Job& job);

}  // namespace ndmesh::train
