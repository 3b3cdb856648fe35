#include "ndmesh/train/optimizer.h"

#include "ndmesh/train/adamw.h"
#include "ndmesh/train/muon.h"
#include "ndmesh/train/scalar_type.h"
#include "ndmesh/train/sgd.h"

namespace ndmesh::train {
namespace {

/// Input tables and the head: matrices that are not between two hidden vectors.
std::vector<std::string> end_matrices(const model::ModelSpec& model) {
  std::vector<std::string> names;
  for (const model::ParameterSpec& end : model.end_parameters()) {
    names.push_back(end.name);
  }
  return names;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const job::Job& job, const model::ModelSpec& model,
                                          const std::vector<parallel::Trainable>& trainables,
                                          comm::Communicator& communicator) {
  const StateOptions states{job.precision.bf16_states, job.shard.offload != job::Offload::none};
  switch (job.optimizer.name) {
    case job::OptimizerName::sgd:
      return std::make_unique<Sgd>(job.optimizer, trainables, states);
    case job::OptimizerName::muon:
      return std::make_unique<Muon>(job.optimizer, trainables,
                                    MuonOptions{states, scalar_type(job.dtype), end_matrices(model)},
                                    communicator);
    case job::OptimizerName::adamw:
      break;
  }
  return std::make_unique<AdamW>(job.optimizer, trainables, states);
}

}  // namespace ndmesh::train
