#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/layout/cut.h"
#include "ndmesh/layout/layout.h"
#include "ndmesh/mesh/rules.h"

namespace ndmesh::layout {
namespace {

using mesh::Axis;
using mesh::AxisSet;
using model::ModelSpec;
using model::ParameterSpec;
using model::Role;

/// A fused matrix: its parts one after another, keys and values shared as they are on their own, or
/// interleaved by head or row, so that contiguous parts are whole heads.
Placement fused_placement(const ParameterSpec& parameter, const ModelSpec& spec, AxisSet axes) {
  if (parameter.segments.empty()) return Placement::shard(axes, parameter.out_dim());
  std::vector<Placement::Segment> segments;
  for (const std::int64_t size : parameter.segments) {
    const bool keys = parameter.role == Role::fused_qkv && !segments.empty();
    segments.push_back({size, keys ? spec.kv_heads : 0});
  }
  return Placement::pieces(axes, parameter.out_dim(), std::move(segments));
}

/// How the ranks of `axes` cut a parameter: tp the dense ones, etp those of an expert. Column-parallel
/// linears are cut along their outputs, row-parallel ones along their inputs, and a row-parallel bias is
/// added once, after the sum, so every rank holds it whole.
Placement model_placement(const ParameterSpec& parameter, const ModelSpec& spec, AxisSet axes,
                          std::int64_t vocabulary_multiple) {
  switch (parameter.role) {
    case Role::embedding:
    case Role::head:
      return Placement::padded(axes, 0, vocabulary_multiple);
    case Role::query:
    case Role::latent_up:
    case Role::gate:
    case Role::up:
    case Role::expert_gate:
    case Role::expert_up:
    case Role::expert_gate_up:
    case Role::sinks:
    case Role::mtp_projection:
    case Role::unspecified:
      return Placement::shard(axes, parameter.out_dim());  // the rules grant whole query heads
    case Role::key:
    case Role::value:
      return Placement::shared(axes, parameter.out_dim(), spec.kv_heads);
    case Role::fused_qkv:
    case Role::fused_gate_up:
      return fused_placement(parameter, spec, axes);
    case Role::attention_output:
    case Role::down:
    case Role::expert_down:
      return parameter.bias ? Placement::replicate(axes) : Placement::shard(axes, parameter.in_dim());
    case Role::head_norm:  // of all heads together: with its heads
      return spec.qk_norm_whole ? Placement::shared(axes, 0, parameter.shape[0] / spec.head_dim)
                                : Placement::replicate(axes);
    case Role::norm:
    case Role::positions:
    case Role::latent_down:
    case Role::router:
      break;
  }
  return Placement::replicate(axes);
}

AxisSet axes_of_several_ranks(AxisSet axes, const mesh::Mesh& mesh) {
  for (const Axis axis : mesh::all_axes) {
    if (mesh.size(axis) == 1) axes = axes.without(axis);
  }
  return axes;
}

/// Of any part: of a fused tensor only keys and values may be shared.
bool has_copies(const TensorLayout& tensor, Axis axis) {
  const std::vector<std::int64_t> copies = tensor.box_copies(0, {axis});
  return std::any_of(copies.begin(), copies.end(), [](std::int64_t count) { return count > 1; });
}

/// Pipeline stages: the input table and positions on the first, final norm, head and MTP layers on the last.
void assign_stages(ParameterLayout& parameter, const ModelSpec& spec, const std::vector<Range>& stages) {
  const ParameterSpec& p = parameter.spec;
  const std::int64_t last = static_cast<std::int64_t>(stages.size()) - 1;
  if (p.layer >= 0) {
    const auto ends_behind = [&](const Range& layers) { return layers.start + layers.size > p.layer; };
    const auto stage = std::find_if(stages.begin(), stages.end(), ends_behind) - stages.begin();
    parameter.first_stage = parameter.last_stage = std::min<std::int64_t>(stage, last);
  } else {
    const bool first = p.role == Role::embedding || p.role == Role::positions;
    const bool both = p.role == Role::embedding && spec.tied;
    parameter.first_stage = first ? 0 : last;
    parameter.last_stage = first && !both ? 0 : last;
  }
}

/// Whether a tp rank uses the parameter for its own heads only, wherever it is not cut.
bool sees_some_heads(Role role) {
  switch (role) {
    case Role::key:
    case Role::value:
    case Role::fused_qkv:
    case Role::head_norm:
    case Role::latent_down:
    case Role::latent_up:
      return true;
    default:
      return false;
  }
}

/// The axis sets follow from who holds what and from what each rank's gradient is made of: loss ranks see
/// different tokens; tp ranks with the same parameter see different tokens of a sequence or different heads;
/// the two ends of a pipeline use a tied table differently.
void derive_axes(ParameterLayout& parameter, bool sequence_parallel) {
  const TensorLayout& tensor = parameter.tensor;
  const AxisSet cut = tensor.cut_axes();
  AxisSet partial = mesh::loss_axes;
  const bool differs = sequence_parallel || sees_some_heads(parameter.spec.role);
  if ((has_copies(tensor, Axis::tp) && differs) || model::is_expert(parameter.spec.role)) {
    partial = partial.with(Axis::tp);
  }
  if (parameter.first_stage != parameter.last_stage) partial = partial.with(Axis::pp);
  parameter.gradient_reduction_axes = axes_of_several_ranks(partial, tensor.mesh());
  for (const Axis axis : mesh::all_axes) {
    const bool scatters =
        parameter.gradient_reduction_axes.contains(axis) && cut.contains(axis) && !has_copies(tensor, axis);
    if (scatters) parameter.gradient_scatter_axes = parameter.gradient_scatter_axes.with(axis);
  }
  parameter.norm_axes = cut | axes_of_several_ranks({Axis::pp}, tensor.mesh());
}

void check_experts(const ModelSpec& spec, const mesh::MeshSizes& sizes, Problems& problems) {
  if (spec.experts && sizes.ep * sizes.etp > 1) {
    problems.add(
        fmt::format("mesh.ep_size {} and mesh.etp_size {}: layouts of single ranks are not built for experts "
                    "that are spread over ranks; allowed: 1 and 1",
                    sizes.ep, sizes.etp));
  }
}

/// Experts that ep and etp leave whole are shared by all ranks that would hold copies: tp ranks too.
std::vector<Placement> placements_of(const ParameterSpec& parameter, const ModelSpec& spec,
                                     const mesh::Mesh& mesh, const ParameterRules& rules) {
  const AxisSet shard_axes = rules.shard_over_cp ? mesh::shard_axes : AxisSet{Axis::dp_shard};
  if (model::is_expert(parameter.role)) return {Placement::shard(shard_axes.with(Axis::tp), 0)};
  return {model_placement(parameter, spec, {Axis::tp}, mesh.size(Axis::tp) * rules.vocabulary_multiple),
          Placement::shard(shard_axes, 0)};
}

}  // namespace

std::vector<ParameterLayout> parameter_layouts(const ModelSpec& spec, const mesh::Mesh& mesh,
                                               const ParameterRules& rules) {
  Problems problems;
  problems.add_all(mesh::broken_rules(mesh::rule_input(spec, mesh.sizes())));
  check_experts(spec, mesh.sizes(), problems);
  problems.raise();
  const std::vector<Range> stages =
      rules.stages.empty() ? even_stages(spec.layers, mesh.size(Axis::pp)) : rules.stages;
  std::vector<ParameterLayout> result;
  for (const ParameterSpec& parameter : spec.parameters()) {
    TensorLayout tensor(parameter.shape, placements_of(parameter, spec, mesh, rules), mesh);
    ParameterLayout& layout =
        result.emplace_back(ParameterLayout{.spec = parameter, .tensor = std::move(tensor)});
    assign_stages(layout, spec, stages);
    derive_axes(layout, rules.sequence_parallel);
  }
  return result;
}

std::int64_t Part::elements() const {
  std::int64_t count = copies;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

Part fullest_part(const model::LayerParameter& parameter, const ModelSpec& spec, const mesh::MeshSizes& sizes,
                  const ParameterRules& rules) {
  const ParameterSpec& p = parameter.spec;
  const bool expert = model::is_expert(p.role);
  const std::int64_t ranks = expert ? sizes.etp : sizes.tp;
  Part part = {p.shape, parameter.copies};
  const Placement placement = model_placement(p, spec, {Axis::tp}, ranks * rules.vocabulary_multiple);
  if (placement.kind != Placement::Kind::replicate) {
    std::int64_t& size = part.shape[static_cast<std::size_t>(placement.dim)];
    size = extent(cut(placement, {{0, size}}, ranks, 0));
  }
  if (expert) {
    std::int64_t& experts = p.stacked ? part.shape.front() : part.copies;
    experts = split(experts, sizes.ep, 0).size;
  }
  return part;
}

Range stage_layers(std::int64_t layers, std::int64_t stages, std::int64_t stage) {
  return split(layers, stages, stage);
}

std::vector<Range> even_stages(std::int64_t layers, std::int64_t stages) {
  std::vector<Range> result;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    result.push_back(stage_layers(layers, stages, stage));
  }
  return result;
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
