#pragma once

#include <vector>

#include "ndmesh/model/model_spec.h"

namespace ndmesh::model {

/// Parameters of layer 0 .. total_layers() - 1, routed experts once; the one place that knows what a layer
/// holds.
std::vector<LayerParameter> layer_inventory(const ModelSpec& spec, std::int64_t layer);

/// Parameters of no layer, in the order of the model.
std::vector<ParameterSpec> end_inventory(const ModelSpec& spec);

}  // namespace ndmesh::model
