#include "ndmesh/plan/memory/memory_states.h"

#include <algorithm>
#include <utility>

#include "ndmesh/base/integers.h"
#include "ndmesh/job/frozen.h"
#include "ndmesh/layout/layout.h"
#include "ndmesh/mesh/rules.h"
#include "ndmesh/plan/integers.h"
#include "ndmesh/plan/memory/sizes.h"

namespace ndmesh::plan {
namespace {

using model::LayerParameter;
using model::Role;

bool is_linear_of_block(const LayerParameter& parameter) {
  switch (parameter.spec.role) {
    case Role::query:
    case Role::key:
    case Role::value:
    case Role::fused_qkv:
    case Role::attention_output:
    case Role::gate:
    case Role::up:
    case Role::fused_gate_up:
    case Role::down:
    case Role::latent_down:
    case Role::latent_up:
      return !parameter.spec.bias;
    default:
      return false;
  }
}

BlockPart part_of(Role role) {
  switch (role) {
    case Role::query:
    case Role::key:
    case Role::value:
    case Role::fused_qkv:
    case Role::attention_output:
    case Role::head_norm:
    case Role::latent_down:
    case Role::latent_up:
    case Role::sinks:
      return BlockPart::attention;
    case Role::norm:
      return BlockPart::norms;
    default:
      return BlockPart::feed_forward;
  }
}

bool is_weight_of_product(const LayerParameter& parameter) {
  return is_linear_of_block(parameter) || parameter.spec.role == Role::head ||
         (model::is_expert(parameter.spec.role) && !parameter.spec.bias);
}

/// Cuts the parameters of one unit and lists them.
class PartsBuilder {
 public:
  PartsBuilder(const Problem& problem, const mesh::MeshSizes& sizes) : problem_(problem), sizes_(sizes) {}

  /// `trained` by parameter.
  void add_unit(UnitKind kind, const std::vector<LayerParameter>& parameters,
                const std::vector<bool>& trained) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      add(kind, parameters[i], trained[i]);
    }
    flush_shape();
  }

  void add_ends() {
    const model::ModelSpec& model = problem_.model;
    for (const model::ParameterSpec& end : model.end_parameters()) {
      const bool of_last = end.role == Role::norm || end.role == Role::head;
      const bool trained = !job::is_frozen(problem_.frozen, end.name);
      add(of_last ? UnitKind::last : UnitKind::first, {.spec = end}, trained);
      if (model.tied && end.role == Role::embedding && sizes_.pp > 1) {
        add(UnitKind::last, {.spec = end}, trained);
      }
      if (end.role == Role::head || end.role == Role::embedding) {
        parts_.vocab = cut({.spec = end}).shape.front();
      }
      flush_shape();
    }
  }

  Parts take() { return std::move(parts_); }

 private:
  layout::Part cut(const LayerParameter& parameter) const {
    const layout::ParameterRules rules = {.vocabulary_multiple = problem_.profile.memory.vocabulary_multiple};
    return layout::fullest_part(parameter, problem_.model, sizes_, rules);
  }

  void add(UnitKind kind, const LayerParameter& parameter, bool trained) {
    const layout::Part part = cut(parameter);
    const bool has_adapters = problem_.adapter.rank > 0;
    const std::int64_t rows = part.shape.front();
    const bool matrix = part.shape.size() == 2 && kind != UnitKind::first && kind != UnitKind::last;
    const std::int64_t elements = part.elements() / std::max<std::int64_t>(1, part.copies);
    unit(kind).push_back({.elements = elements,
                          .rows = rows,
                          .copies = part.copies,
                          .expert = model::is_expert(parameter.spec.role),
                          .trained = trained && !has_adapters,
                          .matrix = matrix,
                          .of = part_of(parameter.spec.role)});
    if (has_adapters && is_linear_of_block(parameter)) {
      add_adapter(kind, rows, elements / rows);
    }
    if (is_weight_of_product(parameter)) {
      note_shape(kind, parameter.spec.role, rows, elements / rows);
    }
  }

  void add_adapter(UnitKind kind, std::int64_t rows, std::int64_t columns) {
    const std::int64_t rank = problem_.adapter.rank;
    unit(kind).push_back({.elements = rank * columns, .rows = rank, .matrix = true});
    unit(kind).push_back({.elements = rows * rank, .rows = rows, .matrix = true});
  }

  std::vector<Part>& unit(UnitKind kind) { return parts_.units[static_cast<std::size_t>(kind)]; }

  /// Megatron fuses q, k and v, and gate and up, so their rows make one weight.
  void note_shape(UnitKind kind, Role role, std::int64_t rows, std::int64_t columns) {
    const bool continues =
        role == Role::key || role == Role::value || role == Role::up || role == Role::expert_up;
    if (!continues) flush_shape();
    pending_ = {.rows = pending_.rows + rows, .columns = columns, .units = 1U << static_cast<unsigned>(kind)};
  }

  void flush_shape() {
    const WeightShape done = std::exchange(pending_, {});
    if (done.rows == 0) return;
    for (WeightShape& shape : parts_.weight_shapes) {
      if (shape.rows == done.rows && shape.columns == done.columns) {
        shape.units |= done.units;
        return;
      }
    }
    parts_.weight_shapes.push_back(done);
  }

  const Problem& problem_;
  const mesh::MeshSizes& sizes_;
  Parts parts_;
  WeightShape pending_;
};

/// Turns elements into bytes of copies.
class StateBytes {
 public:
  StateBytes(const Problem& problem, const Sharing& sharing)
      : problem_(problem), profile_(problem.profile.memory), sharing_(sharing) {}

  UnitBytes of(const std::vector<Part>& unit) const {
    UnitBytes bytes;
    for (const Part& part : unit) {
      add(bytes, part);
    }
    move_to_host(bytes);
    return bytes;
  }

 private:
  void add(UnitBytes& bytes, const Part& part) const {
    const std::int64_t whole = part.copies * round_up(part.elements, profile_.alignment);
    const std::int64_t shard = shard_elements(part);
    const std::int64_t zero = sharing_.zero;
    bytes.gathered += whole * compute_;
    bytes.gathered_norms += part.of == BlockPart::norms ? whole * compute_ : 0;
    bytes.gathered_attention += part.of == BlockPart::attention ? whole * compute_ : 0;
    if (!part.trained) {
      bytes.parameters += (zero == 3 ? shard : whole) * compute_;
      return;
    }
    const bool has_copy = profile_.working_copy && compute_ != wide_;
    const bool copy_is_kept = has_copy && (zero < 3 || profile_.keeps_sharded_copy);
    const std::int64_t values = zero == 3 ? shard : whole;
    bytes.parameters += values * (copy_is_kept ? compute_ : wide_);
    bytes.master_weights += copy_is_kept ? (zero >= 1 ? shard : whole) * wide_ : 0;
    bytes.gradients += (zero >= 2 ? shard : whole) * (profile_.wide_gradients ? wide_ : compute_);
    bytes.gradients += profile_.wide_gradient_copy ? whole * wide_ : 0;
    bytes.optimizer +=
        moments(part) * moment_bytes(zero >= 1 ? shard_raw(part) : part.copies * part.elements);
    const std::int64_t gradient = allocated(part.copies * part.elements * compute_);
    bytes.whole_gradients += gradient;
    bytes.largest = std::max(bytes.largest, gradient);
  }

  /// Elements on the rank, without the alignment of a flat storage.
  std::int64_t shard_raw(const Part& part) const {
    const std::int64_t ranks = part.expert ? sharing_.expert_ranks : sharing_.ranks;
    if (!profile_.cuts_rows) return ceil_div(part.copies * part.elements, ranks);
    const std::int64_t rows = part.copies * part.rows;
    return layout::split(rows, ranks, sharing_.index % ranks).size * (part.elements / part.rows);
  }

  std::int64_t shard_elements(const Part& part) const {
    return round_up(shard_raw(part), profile_.alignment);
  }

  std::int64_t moments(const Part& part) const {
    switch (problem_.optimizer) {
      case job::OptimizerName::adamw:
        return 2;
      case job::OptimizerName::muon:
        return part.matrix ? 1 : 2;
      case job::OptimizerName::sgd:
        break;
    }
    return problem_.momentum ? 1 : 0;
  }

  std::int64_t moment_bytes(std::int64_t elements) const {
    return allocated(elements * (problem_.precision.bf16_states ? 2 : wide_));
  }

  std::int64_t allocated(std::int64_t bytes) const { return round_up(bytes, profile_.allocation); }

  /// `optimizer` moves what only the optimizer reads; `all` also what zero 3 gathers from and reduces into.
  void move_to_host(UnitBytes& bytes) const {
    if (sharing_.offload == job::Offload::none) return;
    move(bytes.optimizer, bytes.host);
    move(bytes.master_weights, bytes.host);
    if (sharing_.offload == job::Offload::all) {
      bytes.arriving += bytes.gradients;
      move(bytes.gradients, bytes.host);
      if (sharing_.zero == 3) move(bytes.parameters, bytes.host);
    }
  }

  static void move(std::int64_t& from, std::int64_t& to) { to += std::exchange(from, 0); }

  const Problem& problem_;
  const MemoryProfile& profile_;
  const Sharing& sharing_;
  const std::int64_t compute_ = ndmesh::bytes_of(problem_.precision.compute);
  const std::int64_t wide_ = ndmesh::bytes_of(wide(problem_.precision.compute));
};

UnitKind kind_of(const model::ModelSpec& model, std::int64_t layer) {
  return layer >= model.layers ? UnitKind::mtp : model.is_moe(layer) ? UnitKind::moe : UnitKind::dense;
}

/// By parameter of a block of `kind`, whether one of these blocks trains it.
std::vector<bool> trained_somewhere(const Problem& problem, UnitKind kind) {
  std::vector<bool> trained;
  for (std::int64_t layer = 0; layer < problem.model.total_layers(); ++layer) {
    if (kind_of(problem.model, layer) != kind) continue;
    const std::vector<LayerParameter> parameters = problem.model.layer_parameters(layer);
    trained.resize(parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      trained[i] = trained[i] || !job::is_frozen(problem.frozen, parameters[i].spec.name);
    }
    if (problem.frozen.empty()) break;  // one layer is like the other
  }
  return trained;
}

}  // namespace

Parts parts_of(const Problem& problem, const mesh::MeshSizes& sizes) {
  PartsBuilder builder(problem, sizes);
  const model::ModelSpec& model = problem.model;
  std::array<bool, 3> seen = {};
  for (std::int64_t layer = 0; layer < model.total_layers(); ++layer) {
    const UnitKind kind = kind_of(model, layer);
    if (!std::exchange(seen[static_cast<std::size_t>(kind)], true)) {
      builder.add_unit(kind, model.layer_parameters(layer), trained_somewhere(problem, kind));
    }
  }
  builder.add_ends();
  return builder.take();
}

Sharing sharing_of(const Candidate& candidate) {
  const mesh::MeshSizes& mesh = candidate.mesh;
  const std::int64_t ranks = mesh.dp_shard * mesh.cp;
  return {.ranks = ranks,
          .expert_ranks = std::max<std::int64_t>(1, ranks * mesh.tp / (mesh.ep * mesh.etp)),
          .zero = ranks > 1 || candidate.offload == job::Offload::all ? candidate.zero : 0,
          .offload = candidate.offload};
}

void UnitBytes::add(const UnitBytes& unit, std::int64_t times) {
  parameters += times * unit.parameters;
  master_weights += times * unit.master_weights;
  gradients += times * unit.gradients;
  optimizer += times * unit.optimizer;
  host += times * unit.host;
  gathered += times * unit.gathered;
  whole_gradients += times * unit.whole_gradients;
  arriving = std::max(arriving, times > 0 ? unit.arriving : 0);
  largest = std::max(largest, times > 0 ? unit.largest : 0);
}

ModelBytes bytes_of(const Problem& problem, const Parts& parts, const Sharing& sharing) {
  const StateBytes states(problem, sharing);
  ModelBytes result;
  for (std::size_t kind = 0; kind < unit_kinds; ++kind) {
    result[kind] = states.of(parts.units[kind]);
  }
  return result;
}

UnitBytes surplus_of_frozen_layers(const Problem& problem, const Parts& parts, const Sharing& sharing,
                                   const std::vector<std::int64_t>& layers) {
  UnitBytes surplus;
  if (problem.frozen.empty()) return surplus;
  const StateBytes states(problem, sharing);
  for (const std::int64_t layer : layers) {
    const std::vector<Part>& unit = parts.units[static_cast<std::size_t>(kind_of(problem.model, layer))];
    const std::vector<LayerParameter> parameters = problem.model.layer_parameters(layer);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!unit[i].trained || !job::is_frozen(problem.frozen, parameters[i].spec.name)) continue;
      Part frozen = unit[i];
      frozen.trained = false;
      surplus.add(states.of({unit[i]}), 1);
      surplus.add(states.of({frozen}), -1);
    }
  }
  return surplus;
}

std::int64_t dummy_gradient_bytes(const Problem& problem, const Parts& parts, const UnitCounts& counts) {
  if (!problem.profile.memory.dummy_weight_gradients) return 0;
  unsigned present = 0;
  for (std::size_t kind = 0; kind < unit_kinds; ++kind) {
    present |= counts[kind] > 0 ? 1U << kind : 0U;
  }
  std::int64_t elements = 0;
  for (const WeightShape& shape : parts.weight_shapes) {
    elements += (shape.units & present) != 0 ? shape.rows * shape.columns : 0;
  }
  return elements * ndmesh::bytes_of(problem.precision.compute);
}

}  // namespace ndmesh::plan
