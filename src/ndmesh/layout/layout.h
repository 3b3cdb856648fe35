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

/// Part `index` of `extent` cut into `parts` contiguous pieces whose sizes differ by at most one, larger first.
Range split(std::int64_t extent, std::int64_t parts, std::int64_t index);

/// How the ranks of `axes`, taken together as one axis (ranks counted in mesh::Mesh::group order), cut what earlier
/// placements left of a tensor.
struct Placement {
  enum class Kind {
    replicate,  ///< everybody holds all
    shard,      ///< dim in contiguous parts that differ by at most one, larger first; parts may be empty
    padded,     ///< dim rounded up to a multiple of `multiple`, then equal parts; boxes hold real indices only
    pieces,     ///< dim is a sequence of segments (fused q|k|v, gate|up); each is cut on its own, as shard or shared
    shared,     ///< dim holds `units` equal units (KV heads); with more ranks than units, neighbours share one
    zigzag,     ///< dim in 2n pieces; rank r holds pieces r and 2n-1-r (causal balance)
  };
  struct Segment {
    std::int64_t size = 0;
    std::int64_t units = 0;  ///< 0: cut as shard; otherwise as shared with that many units
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
};

/// A global tensor on a mesh: its shape and the placements, applied in order. Everything about who holds what is derived
/// here and nowhere else: local shapes, initial values, checkpoint boxes, reductions.
/// Axes that no placement names hold copies.
class TensorLayout {
 public:
  /// RequestError when an axis is named twice, a dim is out of range, segments do not add up, or units do not divide
  /// (or are not divided by) the number of ranks.
  TensorLayout(Shape shape, std::vector<Placement> placements, const mesh::Mesh& mesh);

  const Shape& shape() const { return shape_; }
  const std::vector<Placement>& placements() const { return placements_; }
  const mesh::Mesh& mesh() const { return mesh_; }

  /// What `rank` holds, in the order in which it lies in local memory: boxes are concatenated along the dim that cuts
  /// into pieces. At least one box; a rank that holds nothing has one empty box.
  std::vector<Box> boxes(std::int64_t rank) const;

  /// Shape of the local tensor on `rank` (real indices only: padding is the runtime's).
  Shape local_shape(std::int64_t rank) const;
  std::int64_t local_elements(std::int64_t rank) const;

  /// Axes whose ranks hold different parts: squared norms are summed over these (and only these).
  mesh::AxisSet cut_axes() const;
  /// On how many ranks of `axes` each element lives: 1 where cut, the size where replicated, in between where shared.
  std::int64_t copies(std::int64_t rank, mesh::AxisSet axes) const;

 private:
  Shape shape_;
  std::vector<Placement> placements_;
  mesh::Mesh mesh_;
};

/// The strategies that a layout is made for; sizes come from the mesh.
struct ParameterRules {
  bool shard_over_cp = true;            ///< shard ranks are cp x dp_shard; false: copies over cp
  std::int64_t vocabulary_multiple = 1;  ///< vocabulary is padded (inside only) to a multiple of tp times this
};

/// A parameter of a model on a mesh, and what follows from where it lies.
struct ParameterLayout {
  model::ParameterSpec spec;
  TensorLayout tensor;
  std::int64_t first_stage = 0;  ///< pipeline stages that hold it (a tied table lives on the first and the last)
  std::int64_t last_stage = 0;

  /// Axes over which each rank has only a part of the gradient, which must be summed: the loss axes, and tp for a
  /// parameter that tp replicates but feeds with different tokens (sequence parallel) or heads.
  mesh::AxisSet gradient_reduction_axes;
  /// Of these, the axes where the sum ends up cut like the parameter (reduce-scatter); the rest keep it whole
  /// (all-reduce).
  mesh::AxisSet gradient_scatter_axes;
  /// Axes over which squared gradient norms are summed, each element counted once.
  mesh::AxisSet norm_axes;
};

/// Layouts of every parameter of `spec` on `mesh`: tp by role, then dp_shard (and cp) on dim 0 of what tp left.
/// Layers go to pipeline stages in contiguous runs that differ by at most one, larger first.
std::vector<ParameterLayout> parameter_layouts(const model::ModelSpec& spec, const mesh::Mesh& mesh,
                                               const ParameterRules& rules = {});

/// Bytes that one rank must receive from others in one collective over `ranks` ranks of a tensor of `bytes` in all
/// (the algorithm's lower bound): (n-1)/n * bytes for all-gather and reduce-scatter, twice that for all-reduce.
std::int64_t all_gather_bytes(std::int64_t bytes, std::int64_t ranks);
std::int64_t reduce_scatter_bytes(std::int64_t bytes, std::int64_t ranks);
std::int64_t all_reduce_bytes(std::int64_t bytes, std::int64_t ranks);

}  // namespace ndmesh::layout
