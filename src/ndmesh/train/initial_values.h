#pragma once

#include <cstdint>
#include <vector>

#include "ndmesh/model/model_spec.h"
#include "ndmesh/parallel/trainable.h"
#include "ndmesh/train/safetensors.h"

namespace ndmesh::train {

/// Fills what rank `rank` owns with fresh values: matrices normal with deviation initializer_range, norms 1,
/// biases 0. Element i of parameter p depends on (seed, name of p, i) alone, by the counter-based generator
/// Philox (Salmon et al., 2011), so it is the same on every mesh.
void fill_fresh(const std::vector<parallel::OwnedParameter>& parameters, const model::ModelSpec& model,
                std::uint64_t seed, std::int64_t rank);

/// Fills what rank `rank` owns from stored weights, box by box.
void fill_from(const ModelWeights& weights, const std::vector<parallel::OwnedParameter>& parameters,
               std::int64_t rank);

}  // namespace ndmesh::train
