#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ndmesh {

/// What a byte of a rank's memory is for. The one list for prediction, counting, record and tables.
enum class MemoryCategory : std::uint8_t {
  parameters,      ///< the copy that the optimizer updates, or the full copy that compute reads
  master_weights,  ///< float32 copy of parameters that compute reads in bfloat16
  gradients,       ///< gradients as the optimizer reads them
  optimizer,       ///< moments
  activations,     ///< what forward keeps for backward, and what flows between modules
  gathered,        ///< full parameters that a sharded unit holds only while it computes
  buffers,         ///< gradients before they are reduced, and other transient communication buffers
  logits,          ///< logits and their gradient
  workspace,       ///< everything else that an operator takes for a moment
  kv_cache,        ///< keys and values of generated sequences
  headroom,        ///< left free on purpose
};

inline constexpr std::size_t memory_category_count = 11;

/// Names as in record and plan, in the order of MemoryCategory.
inline constexpr std::array<std::string_view, memory_category_count> memory_category_names = {
    "parameters", "master_weights", "gradients", "optimizer", "activations", "gathered",
    "buffers",    "logits",         "workspace", "kv_cache",  "headroom"};

/// Bytes by category.
struct MemoryBytes {
  std::array<std::int64_t, memory_category_count> by_category{};

  std::int64_t& operator[](MemoryCategory c) { return by_category[static_cast<std::size_t>(c)]; }
  std::int64_t operator[](MemoryCategory c) const { return by_category[static_cast<std::size_t>(c)]; }
  std::int64_t total() const;
};

/// The category to which this thread's allocations are booked now; workspace outside any MemoryScope.
MemoryCategory current_memory_category();

/// Books this thread's allocations to `category` for as long as it lives. Scopes nest. Costs two stores.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryCategory category);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  MemoryCategory before_;
};

/// Whether this thread's allocations are host memory now.
bool allocates_on_host();

/// Books this thread's allocations to host memory, in the current category, for as long as it lives: what was taken from
/// the device on purpose. Scopes nest.
class HostMemoryScope {
 public:
  /// `on_host` false changes nothing.
  explicit HostMemoryScope(bool on_host = true);
  ~HostMemoryScope();
  HostMemoryScope(const HostMemoryScope&) = delete;
  HostMemoryScope& operator=(const HostMemoryScope&) = delete;

 private:
  bool before_;
};

}  // namespace ndmesh
