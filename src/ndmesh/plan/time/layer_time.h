#pragma once

#include <array>
#include <cstdint>

#include "ndmesh/plan/problem.h"
#include "ndmesh/plan/time/collectives.h"
#include "ndmesh/plan/time/op_time.h"

namespace ndmesh::plan {

/// What a layer waits for besides its own compute.
enum class Wait : std::uint8_t { tp_all_gather, tp_reduce_scatter, tp_all_reduce, cp, ep, offload, reload };
inline constexpr std::size_t wait_count = 7;

/// Seconds of one pass over some layers for one micro-batch.
struct Pass {
  double compute = 0;
  std::array<double, wait_count> waits{};  ///< exposed, by Wait

  double& wait(Wait kind) { return waits[static_cast<std::size_t>(kind)]; }
  double wait(Wait kind) const { return waits[static_cast<std::size_t>(kind)]; }
  double waiting() const;
  double total() const { return compute + waiting(); }
  Pass& operator+=(const Pass& other);
  Pass& operator-=(const Pass& other);
  Pass& operator*=(double factor);
};

/// Some layers (or an end of the model) on one rank: their passes, and the parameters that the rank holds of
/// them before the shard ranks share them.
struct Work {
  Pass forward, input_grad, weight_grad;
  double dense = 0;   ///< elements reduced over the loss ranks
  double expert = 0;  ///< elements of routed experts, reduced over edp
  double layers = 0;

  Pass whole() const;  ///< forward and both gradients
  Work& operator+=(const Work& other);
  Work& operator-=(const Work& other);
};

/// Bytes that one block sends to host memory in forward and gets back in backward, of one micro-batch.
struct OffloadedBytes {
  double dense = 0;
  double moe = 0;
  double recomputed = 0;  ///< a block of either kind whose forward runs again
  bool operator==(const OffloadedBytes&) const = default;
};

/// What one rank works on in one micro-batch, and the groups that it talks to meanwhile.
struct Division {
  double tokens = 0;  ///< of one micro-batch on one rank: micro * seq_len / cp
  double tp = 1, cp = 1, ep = 1, etp = 1;
  bool sequence_parallel = true;
  OffloadedBytes offloaded;
  GroupCost tp_group, cp_group, ep_group, etp_group;
  bool operator==(const Division&) const = default;
};

/// Which of a model's layers.
struct LayerKind {
  bool moe = false;
  bool windowed = false;
  bool recomputed = false;  ///< its forward runs again before its backward
  bool selective = false;   ///< or the part of it that the runtime calls selective
};

/// Times of one division's layers. References must outlive it.
class LayerClock {
 public:
  LayerClock(const Problem& problem, const Rates& rates, const Collectives& collectives,
             const Division& division);

  Work layer(const LayerKind& kind) const;
  Work embedding() const;
  Work head() const;        ///< with final norm and loss
  Work prediction() const;  ///< what a multi-token prediction adds to its layer: projection and head

 private:
  struct Tally;  // a Work in the making, with the launches of its kernels

  void linear(Tally& tally, const Product& product) const;
  void elementwise(Tally& tally, double bytes) const;
  void enter_columns(Tally& tally) const;
  void leave_rows(Tally& tally) const;
  void attention(Tally& tally, bool windowed) const;
  void attention_core(Tally& tally, bool windowed) const;
  void context_waits(Tally& tally, double forward_seconds, double backward_seconds) const;
  void projections(Tally& tally) const;
  void feed_forward(Tally& tally, double ffn) const;
  void experts(Tally& tally) const;
  void head_products(Tally& tally) const;
  void cross_to_host(Work& work, const LayerKind& kind) const;
  double context_length(bool windowed) const;
  double local_vocab() const;
  double region_tokens() const {
    return division_.sequence_parallel ? division_.tokens / division_.tp : division_.tokens;
  }

  const model::ModelSpec& model_;
  const Problem& problem_;
  const TimeProfile& profile_;
  const Rates& rates_;
  const Collectives& collectives_;
  Division division_;
};

}  // namespace ndmesh::plan
