#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ndmesh/comm/world.h"
#include "ndmesh/job/job.h"
#include "ndmesh/model/model_spec.h"
#include "ndmesh/parallel/trainable.h"

namespace ndmesh::train {

/// An update rule over what this rank owns. Its moments lie as the parameters do, so they are cut where those are. One
/// rank's thread.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One update with learning rate `lr` by the gradients times `gradient_factor` (clipping). Uses the gradients up: they
  /// hold nothing of meaning afterwards. Collective: all ranks call it.
  void step(double lr, double gradient_factor) {
    ++steps_;
    update(lr, gradient_factor);
  }

  /// Updates begun so far.
  std::int64_t steps() const { return steps_; }

 private:
  /// The rule; steps() counts the update that it makes.
  virtual void update(double lr, double gradient_factor) = 0;

  std::int64_t steps_ = 0;
};

/// The optimizer that `job` names, over `trainables` of `model`, whose tensors must stay the same. `communicator` must
/// outlive it. Not a collective.
std::unique_ptr<Optimizer> make_optimizer(const job::Job& job, const model::ModelSpec& model,
                                          const std::vector<parallel::Trainable>& trainables,
                                          comm::Communicator& communicator);

}  // namespace ndmesh::train
