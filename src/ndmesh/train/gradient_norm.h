#pragma once

#include <string>
#include <vector>

#include "ndmesh/comm/world.h"
#include "ndmesh/parallel/trainable.h"

namespace ndmesh::train {

/// The norm of the whole gradient over all ranks, each element counted once: squares are summed in float64
/// here, then over the axes that cut a parameter, which its layout names, then over the stages of a pipeline. Collective
/// over those axes; every rank gets the same value.
double global_gradient_norm(const std::vector<parallel::Trainable>& trainables,
                            comm::Communicator& communicator);

/// What to multiply gradients by so that their norm is at most `most` (0: never clip): min(1, most / (norm +
/// 1e-6)).
double clip_factor(double norm, double most);

/// For a norm that is not finite: which ranks hold the first bad gradient, and its name. Collective over all
/// ranks.
std::string describe_bad_gradient(const std::vector<parallel::Trainable>& trainables,
                                  comm::Communicator& communicator);

}  // namespace ndmesh::train
