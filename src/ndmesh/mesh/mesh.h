#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ndmesh::mesh {

/// Glossary (use these words in code, help and errors).
///   axis          a dimension of the mesh; a tensor has dims, a mesh has axes
///   rank, world   one worker; all of them
///   group         the ranks that differ only in the named axes
///   batch ranks   see different samples: dp_replicate x dp_shard
///   shard ranks   share one copy of a parameter: cp x dp_shard (in the default order cp varies fastest)
///   loss ranks    contribute to one loss: cp x dp_shard x dp_replicate
///   dense view    the ranks as pp x dp_replicate x dp_shard x cp x tp
///   expert view   the same ranks as pp x edp x ep x etp
enum class Axis : std::uint8_t { tp, cp, dp_shard, dp_replicate, pp };
inline constexpr std::size_t axis_count = 5;
inline constexpr std::array<std::string_view, axis_count> axis_names = {"tp", "cp", "dp_shard",
                                                                        "dp_replicate", "pp"};
inline constexpr std::array<Axis, axis_count> all_axes = {Axis::tp, Axis::cp, Axis::dp_shard,
                                                          Axis::dp_replicate, Axis::pp};

enum class ExpertAxis : std::uint8_t { etp, ep, edp };
inline constexpr std::array<ExpertAxis, 3> all_expert_axes = {ExpertAxis::etp, ExpertAxis::ep,
                                                              ExpertAxis::edp};

std::string_view name_of(Axis axis);
std::string_view name_of(ExpertAxis axis);
std::optional<Axis> axis_from_name(std::string_view name);

/// A set of axes, as in "reduce over dp_shard and cp". Order never matters: inside a group ranks are in mesh
/// order.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (Axis a : axes) bits_ |= bit(a);
  }
  constexpr bool contains(Axis a) const { return (bits_ & bit(a)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr AxisSet with(Axis a) const { return from_bits(bits_ | bit(a)); }
  constexpr AxisSet without(Axis a) const { return from_bits(bits_ & ~bit(a)); }
  constexpr AxisSet operator|(AxisSet other) const { return from_bits(bits_ | other.bits_); }
  constexpr AxisSet operator&(AxisSet other) const { return from_bits(bits_ & other.bits_); }
  constexpr bool operator==(const AxisSet&) const = default;

  /// "cp+dp_shard": names joined by +, in the order of Axis; "none" for the empty set.
  std::string name() const;

 private:
  static constexpr unsigned bit(Axis a) { return 1u << static_cast<unsigned>(a); }
  static constexpr AxisSet from_bits(unsigned bits) {
    AxisSet s;
    s.bits_ = bits;
    return s;
  }
  unsigned bits_ = 0;
};

inline constexpr AxisSet batch_axes = {Axis::dp_shard, Axis::dp_replicate};
inline constexpr AxisSet shard_axes = {Axis::cp, Axis::dp_shard};
inline constexpr AxisSet loss_axes = {Axis::cp, Axis::dp_shard, Axis::dp_replicate};

/// Sizes of the axes, all 1 unless given; keys as in a job (`mesh.tp_size`).
struct MeshSizes {
  std::int64_t tp = 1;
  std::int64_t cp = 1;
  std::int64_t dp_shard = 1;
  std::int64_t dp_replicate = 1;
  std::int64_t pp = 1;
  std::int64_t ep = 1;
  std::int64_t etp = 1;

  std::int64_t size(Axis axis) const;
  std::int64_t& size(Axis axis);
  bool operator==(const MeshSizes&) const = default;

  /// Ranks that see different samples: dp_replicate * dp_shard.
  std::int64_t batch_ranks() const { return dp_replicate * dp_shard; }
  /// Ranks of one pipeline stage: dp_replicate * dp_shard * cp * tp. Saturates at 2^63 - 1, as world does.
  std::int64_t stage_ranks() const;
  /// Product of all dense axes. ep and etp regroup ranks and never multiply.
  std::int64_t world() const;

  /// "dp_shard=2,tp=2"; axes of size 1 are left out; "1" for one rank. The MESH notation of the command line.
  std::string name() const;
};

/// Reads the MESH notation ("dp_shard=2,tp=2", "1"). RequestError names an unknown axis (with the nearest
/// one), a size that is no positive number and an axis named twice.
MeshSizes parse_mesh(std::string_view text);

/// Most ranks of a mesh.
inline constexpr std::int64_t max_world = 2'147'483'647;

/// Axes from the fastest-varying rank to the slowest.
using AxisOrder = std::array<Axis, axis_count>;
inline constexpr AxisOrder default_order = {Axis::tp, Axis::cp, Axis::dp_shard, Axis::dp_replicate, Axis::pp};

/// Reads `mesh.order`, a list of axis names, each exactly once.
AxisOrder parse_order(const std::vector<std::string>& names);

/// Which rank sits where on the named axes, in the dense and the expert view. A plain value: copies are
/// cheap, every method is const and safe from any thread. Ranks are 0 .. world() - 1.
class Mesh {
 public:
  /// Sizes must be positive and their product at most max_world (RequestError). Folded expert view: the ranks
  /// of one pipeline stage, counted tp fastest, then cp, dp_shard, dp_replicate, are cut as etp fastest, then
  /// ep, then edp; dp_replicate * dp_shard * cp * tp must be divisible by ep * etp (RequestError).
  explicit Mesh(MeshSizes sizes, AxisOrder order = default_order);

  std::int64_t world() const { return world_; }
  const MeshSizes& sizes() const { return sizes_; }
  const AxisOrder& order() const { return order_; }
  std::int64_t size(Axis axis) const { return sizes_.size(axis); }
  std::int64_t size(ExpertAxis axis) const;
  /// Product of the sizes of `axes`.
  std::int64_t size(AxisSet axes) const;

  std::int64_t coordinate(std::int64_t rank, Axis axis) const;
  std::int64_t coordinate(std::int64_t rank, ExpertAxis axis) const;
  /// Coordinates of `rank` in the order of Axis.
  std::array<std::int64_t, axis_count> coordinates(std::int64_t rank) const;
  std::int64_t rank_of(const std::array<std::int64_t, axis_count>& coordinates) const;

  /// The ranks that differ from `rank` only in `axes`, itself included, in mesh order: smallest rank first.
  /// Parts are dealt out in this order, so a rank's index in the group is its part, and gathering in group
  /// order is whole.
  std::vector<std::int64_t> group(std::int64_t rank, AxisSet axes) const;
  /// Position of `rank` in group(rank, axes).
  std::int64_t index_in(std::int64_t rank, AxisSet axes) const;
  /// All groups over `axes`, each once, ordered by their smallest rank.
  std::vector<std::vector<std::int64_t>> groups(AxisSet axes) const;
  /// Groups of the expert view, each ordered by the coordinate on `axis`.
  std::vector<std::vector<std::int64_t>> groups(ExpertAxis axis) const;

 private:
  /// The rank's number within its pipeline stage: tp fastest, then cp, dp_shard, dp_replicate, whatever the
  /// order.
  std::int64_t stage_position(std::int64_t rank) const;

  MeshSizes sizes_;
  AxisOrder order_;
  std::int64_t world_ = 1;
  std::array<std::int64_t, axis_count> stride_{};  // by Axis
};

}  // namespace ndmesh::mesh
