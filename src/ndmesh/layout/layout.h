#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ndmesh/mesh/mesh.h"
#include "ndmesh/model/model_spec.h"

namespace ndmesh::layout {

using Shape = std::vector<std::int64_t>;

/// Indices start .. start + size - 1 of one dim.
struct Range {
  std::int64_t start = 0;
  std::int64_t size = 0;
  bool operator==(const Range&) const = default;
};

/// One Range for each dim of the global tensor. Empty when any range is empty.
using Box = std::vector<Range>;
std::int64_t elements(const Box& box);

/// Part `index` of `extent` cut into `parts` contiguous pieces whose sizes differ by at most one, larger
/// first.
Range split(std::int64_t extent, std::int64_t parts, std::int64_t index);

/// How the ranks of `axes`, taken together as one axis (ranks counted in mesh::Mesh::group order), cut what
/// earlier placements left of a tensor. padded, pieces and shared cut a dim that nothing before them cut.
struct Placement {
  enum class Kind {
    replicate,  ///< everybody holds all
    shard,      ///< dim in contiguous parts that differ by at most one, larger first; parts may be empty
    padded,     ///< dim rounded up to a multiple of `multiple` and of the ranks, then equal parts; later
                ///< placements cut the padded parts, boxes hold real indices only
    pieces,     ///< dim is a sequence of segments (fused q|k|v, gate|up); each is cut on its own, as shard or
                ///< shared
    shared,  ///< dim holds `units` equal units (KV heads); with more ranks than units, neighbours share one
    zigzag,  ///< dim in 2n pieces; rank r holds pieces r and 2n-1-r (causal balance)
  };
  struct Segment {
    std::int64_t size = 0;
    std::int64_t units = 0;  ///< 0: cut as shard; otherwise as shared with that many units
    bool operator==(const Segment&) const = default;
  };

  Kind kind = Kind::replicate;
  mesh::AxisSet axes;
  std::int64_t dim = 0;
  std::int64_t multiple = 1;
  std::int64_t units = 0;
  std::vector<Segment> segments;

  static Placement replicate(mesh::AxisSet axes);
  static Placement shard(mesh::AxisSet axes, std::int64_t dim);
  static Placement padded(mesh::AxisSet axes, std::int64_t dim, std::int64_t multiple);
  static Placement pieces(mesh::AxisSet axes, std::int64_t dim, std::vector<Segment> segments);
  static Placement shared(mesh::AxisSet axes, std::int64_t dim, std::int64_t units);
  static Placement zigzag(mesh::AxisSet axes, std::int64_t dim);

  /// "dim 0 over cp+dp_shard", "dim 0 padded to a multiple of 4 over tp": for people.
  std::string describe() const;
  bool operator==(const Placement&) const = default;
};

/// A global tensor on a mesh: its shape and the placements, applied in order. Everything about who holds what
/// is derived here and nowhere else: local shapes, initial values, checkpoint boxes, reductions. Axes that no
/// placement names hold copies.
class TensorLayout {
 public:
  /// RequestError, with everything that is wrong, when an axis is named twice, a dim is out of range,
  /// segments do not add up, units do not divide (or are not divided by) the number of ranks, two dims are
  /// cut into pieces, or the tensor has more than 2^63 - 1 elements.
  TensorLayout(Shape shape, std::vector<Placement> placements, const mesh::Mesh& mesh);

  const Shape& shape() const { return shape_; }
  const std::vector<Placement>& placements() const { return placements_; }
  const mesh::Mesh& mesh() const { return mesh_; }

  /// What `rank` holds, in the order in which it lies in local memory: boxes are concatenated along the dim
  /// that cuts into pieces. At least one box; a rank that holds nothing has one empty box.
  std::vector<Box> boxes(std::int64_t rank) const;

  /// Shape of the local tensor on `rank` (real indices only).
  Shape local_shape(std::int64_t rank) const;
  std::int64_t local_elements(std::int64_t rank) const;
  /// The same with the padding of padded placements, which lies after the real indices: what a runtime
  /// allocates.
  Shape padded_local_shape(std::int64_t rank) const;
  std::int64_t padded_local_elements(std::int64_t rank) const;

  /// Axes (of more than one rank) whose ranks hold different parts: squared norms are summed over these and
  /// only these.
  mesh::AxisSet cut_axes() const;
  /// For each box of boxes(rank): on how many ranks of `axes` its elements live: 1 where cut, the size where
  /// replicated, in between where shared. A sum over ranks of the group counts an element once when weighted
  /// by 1 / copies.
  std::vector<std::int64_t> box_copies(std::int64_t rank, mesh::AxisSet axes) const;
  /// The same for layouts whose boxes all have equally many; std::logic_error for others (fused tensors with
  /// shared segments).
  std::int64_t copies(std::int64_t rank, mesh::AxisSet axes) const;

 private:
  /// By dim what `rank` holds, padding included.
  std::vector<std::vector<Range>> padded_ranges(std::int64_t rank) const;

  Shape shape_;
  std::vector<Placement> placements_;
  mesh::Mesh mesh_;
};

/// The strategies that a layout is made for; sizes come from the mesh.
struct ParameterRules {
  bool shard_over_cp = true;  ///< shard ranks are cp x dp_shard; false: copies over cp
  std::int64_t vocabulary_multiple =
      1;  ///< vocabulary is padded (inside only) to a multiple of tp times this
  /// The layers of each pipeline stage, in the order of the model: contiguous, each layer once, none empty. No entry: as
  /// stage_layers cuts them for the ranks of pp.
  std::vector<Range> stages = {};
  bool sequence_parallel = true;  ///< what tp replicates sees a part of the tokens on each of its ranks
};

/// A parameter of a model on a mesh, and what follows from where it lies. Axes of one rank never appear in
/// the sets.
struct ParameterLayout {
  model::ParameterSpec spec;
  TensorLayout tensor;
  /// Pipeline stages that hold it: a tied table lives on the first and the last.
  std::int64_t first_stage = 0;
  std::int64_t last_stage = 0;

  /// Axes over which each rank has only a part of the gradient, which must be summed: the loss axes; tp for a
  /// parameter that tp replicates but feeds with different tokens (if sequence parallel) or heads; pp for a tied
  /// table. Over tp and pp the sum is over the ranks that hold the same elements: all where replicated,
  /// neighbours where shared, both ends of the pipeline for a tied table.
  mesh::AxisSet gradient_reduction_axes = {};
  /// Of these, the axes where the sum ends up cut like the parameter (reduce-scatter); the rest keep it whole
  /// (all-reduce).
  mesh::AxisSet gradient_scatter_axes = {};
  /// Axes over which squared gradient norms are summed: those that cut it, and pp. Each element is counted
  /// once: weigh by 1 / copies over these axes, and leave a tied table out on the last stage.
  mesh::AxisSet norm_axes = {};

  /// Whether the ranks of a pipeline stage hold it.
  bool held_on(std::int64_t stage) const { return stage == first_stage || stage == last_stage; }
};

/// Layouts of every parameter of `spec` on `mesh`: tp by role, then dp_shard (and cp) on dim 0 of what tp
/// left. RequestError with every rule that the model
/// breaks on this mesh (mesh/rules.h).
std::vector<ParameterLayout> parameter_layouts(const model::ModelSpec& spec, const mesh::Mesh& mesh,
                                               const ParameterRules& rules = {});

/// What one rank holds of a parameter that tp (or, for routed experts, ep and etp) has cut, before its shard
/// ranks share it: tensors of one shape.
struct Part {
  Shape shape;              ///< as allocated, vocabulary padding included
  std::int64_t copies = 1;  ///< experts on the rank

  std::int64_t elements() const;
};

/// The part on the rank that holds most: the first of tp, ep and etp. Experts go over ep in runs that differ
/// by at most one, each is cut over etp as tp cuts a dense feed-forward; tp does not cut them. The placement
/// is the one of parameter_layouts. `sizes` have passed the mesh rules.
Part fullest_part(const model::LayerParameter& parameter, const model::ModelSpec& spec,
                  const mesh::MeshSizes& sizes, const ParameterRules& rules = {});

/// The layers of one pipeline stage: contiguous runs that differ by at most one, larger first.
Range stage_layers(std::int64_t layers, std::int64_t stages, std::int64_t stage);
/// Those of every stage.
std::vector<Range> even_stages(std::int64_t layers, std::int64_t stages);

/// Elements of all parameters that `rank` holds, where each pipeline rank is one stage; a tied table counts on both
/// stages that hold it.
std::int64_t local_elements(const std::vector<ParameterLayout>& parameters, std::int64_t rank);
std::int64_t padded_local_elements(const std::vector<ParameterLayout>& parameters, std::int64_t rank);

/// Bytes that one rank must receive from others in one collective over `ranks` ranks of a tensor of `bytes`
/// in all (the algorithm's lower bound): (n-1)/n * bytes, rounded up, for all-gather and reduce-scatter,
/// twice that for all-reduce.
std::int64_t all_gather_bytes(std::int64_t bytes, std::int64_t ranks);
std::int64_t reduce_scatter_bytes(std::int64_t bytes, std::int64_t ranks);
std::int64_t all_reduce_bytes(std::int64_t bytes, std::int64_t ranks);

}  // namespace ndmesh::layout
