#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ndmesh/plan/problem.h"

namespace ndmesh::plan {

/// Parts of a model that are laid out, gathered and reduced together. A plan's layers are of at most three
/// kinds.
enum class UnitKind : std::uint8_t {
  dense,
  moe,
  mtp,    ///< multi-token prediction layers, behind the last stage's decoder layers
  first,  ///< input table, learned positions, what an estimate has beyond its shape
  last,   ///< final norm, head; on another stage than the table that it is tied to, a copy of that
};
inline constexpr std::size_t unit_kinds = 5;

/// How many units of each kind a pipeline rank has.
using UnitCounts = std::array<std::int64_t, unit_kinds>;

/// What a block consists of.
enum class BlockPart : std::uint8_t { norms, attention, feed_forward };

/// One tensor of a unit as tp, ep and etp have cut it, on the rank that holds most.
struct Part {
  std::int64_t elements = 0;  ///< of one copy
  std::int64_t rows = 1;      ///< of one copy: what cuts_rows cuts
  std::int64_t copies = 1;    ///< experts
  bool expert = false;        ///< shared by the expert's shard ranks
  bool trained = true;        ///< has gradient and moments
  bool matrix = false;        ///< of a block: what Muon updates
  BlockPart of = BlockPart::norms;
};

/// A shape of weight for which Transformer Engine keeps a placeholder, and the units that have it.
struct WeightShape {
  std::int64_t rows = 0, columns = 0;
  unsigned units = 0;  ///< bit by UnitKind
};

/// What one (tp, ep, etp) leaves of a model.
struct Parts {
  std::array<std::vector<Part>, unit_kinds> units;
  std::vector<WeightShape> weight_shapes;
  std::int64_t vocab = 0;  ///< rows of the head on a rank, padding included
};

/// A block's part is frozen where Problem::frozen names it in every layer of the kind.
Parts parts_of(const Problem& problem, const mesh::MeshSizes& sizes);

/// How the states of a unit are shared.
struct Sharing {
  std::int64_t ranks = 1;         ///< shard ranks of dense parameters
  std::int64_t expert_ranks = 1;  ///< of experts
  std::int64_t index = 0;         ///< of the rank asked about; 0 has most
  std::int64_t zero = 0;          ///< what they share; 0 while ranks is 1, unless everything is offloaded
  job::Offload offload = job::Offload::none;
  bool operator==(const Sharing&) const = default;
};

/// Shard ranks of a candidate: dense parameters over dp_shard x cp, experts over what ep and etp leave of
/// these and tp.
Sharing sharing_of(const Candidate& candidate);

/// Bytes of one unit on one rank.
struct UnitBytes {
  std::int64_t parameters = 0;
  std::int64_t master_weights = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;
  std::int64_t host = 0;            ///< offloaded
  std::int64_t gathered = 0;        ///< whole, in the compute dtype, before shard ranks share it
  std::int64_t gathered_norms = 0;  ///< of that, what belongs neither to attention nor to the feed-forward
  std::int64_t gathered_attention = 0;
  std::int64_t whole_gradients = 0;  ///< before they are reduced, in the compute dtype
  std::int64_t largest = 0;          ///< of whole_gradients: the largest tensor
  std::int64_t arriving = 0;         ///< gradients offloaded: of one unit, reduced, on their way to the host

  std::int64_t states() const { return parameters + master_weights + gradients + optimizer; }
  void add(const UnitBytes& unit, std::int64_t times);
};
using ModelBytes = std::array<UnitBytes, unit_kinds>;

/// Copies by zero stage and precision as MemoryProfile says (ZeRO: Rajbhandari et al., arXiv 1910.02054).
/// With an adapter the base is frozen: a compute copy and nothing else (LoRA: Hu et al., arXiv 2106.09685).
ModelBytes bytes_of(const Problem& problem, const Parts& parts, const Sharing& sharing);

/// What bytes_of counts too much where Problem::frozen names a parameter in some layers of a kind only, of the
/// layers given.
UnitBytes surplus_of_frozen_layers(const Problem& problem, const Parts& parts, const Sharing& sharing,
                                   const std::vector<std::int64_t>& layers);

/// Placeholders of the units in `counts`; 0 for runtimes without.
std::int64_t dummy_gradient_bytes(const Problem& problem, const Parts& parts, const UnitCounts& counts);

}  // namespace ndmesh::plan
