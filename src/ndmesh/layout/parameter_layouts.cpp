#include "ndmesh/base/error.h"
#include "ndmesh/layout/layout.h"
#include "ndmesh/mesh/rules.h"

namespace ndmesh::layout {
namespace {

using mesh::Axis;
using mesh::AxisSet;
using model::ModelSpec;
using model::ParameterSpec;
using model::Role;

/// Where tp cuts a parameter. Column-parallel linears are cut along their outputs, row-parallel ones along
/// their inputs, and a row-parallel bias is added once, after the sum, so every rank holds it whole.
Placement tp_placement(const ParameterSpec& parameter, const ModelSpec& spec, const mesh::Mesh& mesh,
                       const ParameterRules& rules) {
  const AxisSet tp = {Axis::tp};
  switch (parameter.role) {
    case Role::embedding:
    case Role::head:
      return Placement::padded(tp, 0, mesh.size(Axis::tp) * rules.vocabulary_multiple);
    case Role::query:
    case Role::gate:
    case Role::up:
      return Placement::shard(tp, 0);  // the rules grant whole query heads
    case Role::key:
    case Role::value:
      return Placement::shared(tp, 0, spec.kv_heads);
    case Role::attention_output:
    case Role::down:
      return parameter.bias ? Placement::replicate(tp) : Placement::shard(tp, 1);
    default:
      break;
  }
  return Placement::replicate(tp);
}

AxisSet axes_of_several_ranks(AxisSet axes, const mesh::Mesh& mesh) {
  for (const Axis axis : mesh::all_axes) {
    if (mesh.size(axis) == 1) axes = axes.without(axis);
  }
  return axes;
}

bool has_copies(const TensorLayout& tensor, Axis axis) {
  return tensor.copies(0, {axis}) > 1;
}

/// Pipeline stages: layers by stage_layers, the input table on the first, final norm and head on the last.
void assign_stages(ParameterLayout& parameter, const ModelSpec& spec, std::int64_t stages) {
  const ParameterSpec& p = parameter.spec;
  if (p.layer >= 0) {
    std::int64_t stage = 0;
    while (stage_layers(spec.layers, stages, stage).start + stage_layers(spec.layers, stages, stage).size <=
           p.layer) {
      ++stage;
    }
    parameter.first_stage = parameter.last_stage = stage;
  } else {
    parameter.first_stage = p.role == Role::embedding ? 0 : stages - 1;
    parameter.last_stage = p.role == Role::embedding && !spec.tied ? 0 : stages - 1;
  }
}

/// The axis sets follow from who holds what and from what each rank's gradient is made of: loss ranks see
/// different tokens; tp ranks with the same parameter see different tokens of a sequence or different heads;
/// the two ends of a pipeline use a tied table differently.
void derive_axes(ParameterLayout& parameter) {
  const TensorLayout& tensor = parameter.tensor;
  const AxisSet cut = tensor.cut_axes();
  AxisSet partial = mesh::loss_axes;
  if (has_copies(tensor, Axis::tp)) partial = partial.with(Axis::tp);
  if (parameter.first_stage != parameter.last_stage) partial = partial.with(Axis::pp);
  parameter.gradient_reduction_axes = axes_of_several_ranks(partial, tensor.mesh());
  for (const Axis axis : mesh::all_axes) {
    const bool scatters =
        parameter.gradient_reduction_axes.contains(axis) && cut.contains(axis) && !has_copies(tensor, axis);
    if (scatters) parameter.gradient_scatter_axes = parameter.gradient_scatter_axes.with(axis);
  }
  parameter.norm_axes = cut | axes_of_several_ranks({Axis::pp}, tensor.mesh());
}

}  // namespace

std::vector<ParameterLayout> parameter_layouts(const ModelSpec& spec, const mesh::Mesh& mesh,
                                               const ParameterRules& rules) {
  Problems problems;
  problems.add_all(mesh::broken_rules(mesh::rule_input(spec, mesh.sizes())));
  problems.raise();
  const AxisSet shard_axes = rules.shard_over_cp ? mesh::shard_axes : AxisSet{Axis::dp_shard};
  std::vector<ParameterLayout> result;
  for (const ParameterSpec& parameter : spec.parameters()) {
    TensorLayout tensor(parameter.shape,
                        {tp_placement(parameter, spec, mesh, rules), Placement::shard(shard_axes, 0)}, mesh);
    ParameterLayout& layout =
        result.emplace_back(ParameterLayout{.spec = parameter, .tensor = std::move(tensor)});
    assign_stages(layout, spec, mesh.size(Axis::pp));
    derive_axes(layout);
  }
  return result;
}

Range stage_layers(std::int64_t layers, std::int64_t stages, std::int64_t stage) {
  return split(layers, stages, stage);
}

std::int64_t local_elements(const std::vector<ParameterLayout>& parameters, std::int64_t rank) {
  std::int64_t total = 0;
  for (const ParameterLayout& parameter : parameters) {
    const std::int64_t stage = parameter.tensor.mesh().coordinate(rank, Axis::pp);
    if (parameter.held_on(stage)) total += parameter.tensor.local_elements(rank);
  }
  return total;
}

std::int64_t padded_local_elements(const std::vector<ParameterLayout>& parameters, std::int64_t rank) {
  std::int64_t total = 0;
  for (const ParameterLayout& parameter : parameters) {
    const std::int64_t stage = parameter.tensor.mesh().coordinate(rank, Axis::pp);
    if (parameter.held_on(stage)) total += parameter.tensor.padded_local_elements(rank);
  }
  return total;
}

}  // namespace ndmesh::layout
