#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ndmesh/plan/problem.h"

namespace ndmesh::plan {

/// What one forward of a micro-batch works on, on one rank.
struct MicroBatch {
  std::int64_t tokens = 1;         ///< micro * seq_len / cp
  std::int64_t norm_tokens = 1;    ///< of them in norm regions: over tp with sequence parallelism
  std::int64_t routed_tokens = 0;  ///< that the rank's experts work on: top k, their balance, etp
  std::int64_t tp = 1;
  std::int64_t etp = 1;
  std::int64_t seq_len = 1;      ///< that a token's attention spans
  bool heads_exchanged = false;  ///< context parallelism by all-to-all over heads
};

MicroBatch micro_batch(const Problem& problem, const Candidate& candidate);

/// What keeps a saved tensor when recompute.policy is selective, by the runtime's meaning of it.
enum class Kept : std::uint8_t {
  always,       ///< the block's input, attention's output and log-sum-exp, what communication brought
  odd_product,  ///< output of a matrix product that `alternate_products` keeps
  product,      ///< of one that it recomputes
  cheap,        ///< output of a norm or an activation
  scores,       ///< of attention
  unread,       ///< output of a product that no backward reads; `alternate_products` keeps it all the same
};

/// One line of the activation budget.
struct SavedTensor {
  std::string_view what;
  std::int64_t bytes = 0;
  Kept kept = Kept::always;
};

/// What one block keeps for its backward without recomputation, tensor by tensor.
std::vector<SavedTensor> saved_by_block(const Problem& problem, const MicroBatch& micro, bool moe);

/// What lies behind the last block and before the loss.
std::vector<SavedTensor> saved_by_ends(const Problem& problem, const MicroBatch& micro);

std::int64_t total(const std::vector<SavedTensor>& saved);
/// Of those that `selective` keeps.
std::int64_t total(const std::vector<SavedTensor>& saved, Selective selective);

/// Of what is not kept because it is cheap, the largest: one is made again at a time.
std::int64_t made_again_bytes(const std::vector<SavedTensor>& saved, Selective selective);

/// What the backward of a block needs beyond saved tensors while everything is still held.
std::int64_t backward_bytes(const Problem& problem, const MicroBatch& micro, bool moe);

/// What the backward of a feed-forward works on when everything else waits in host memory: gate, up and their gradients,
/// the gradient of their product, and two hidden-wide gradients.
std::int64_t brought_back_bytes(const Problem& problem, const MicroBatch& micro, bool moe);

/// The input of a block, and what pipeline ranks send: hidden-wide, cut over tp with sequence parallelism.
std::int64_t boundary_bytes(const Problem& problem, const MicroBatch& micro);

/// Logits, their wide copies and gradients at the loss. `vocab`: rows of the head on the rank.
std::int64_t logits_bytes(const Problem& problem, const MicroBatch& micro, std::int64_t vocab);

}  // namespace ndmesh::plan
