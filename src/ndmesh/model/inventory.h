#pragma once

#include <vector>

#include "ndmesh/model/model_spec.h"

namespace ndmesh::model {

/// Parameters of layer 0 .. total_layers() - 1, routed experts once; the one place that knows what a layer
/// holds.
std::vector<LayerParameter> layer_inventory(const ModelSpec& spec, std::int64_t layer);

/// Every parameter of the model with how often it is there: those of a layer of each kind times its layers (`spec` is
/// of the first), and those of no layer. What counts are made of.
std::vector<LayerParameter> counted_inventory(const ModelSpec& spec);

/// Parameters of no layer, in the order of the model.
std::vector<ParameterSpec> end_inventory(const ModelSpec& spec);

}  // namespace ndmesh::model
