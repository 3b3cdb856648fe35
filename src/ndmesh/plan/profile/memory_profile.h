#pragma once

#include <cstdint>

namespace ndmesh::plan {

/// What recompute.policy selective means to a runtime.
enum class Selective {
  nothing,         ///< it has no such policy: nothing is recomputed
  attention_core,  ///< scores of attention (Korthikanti et al., arXiv 2205.05198); flash attention has none
  alternate_products,  ///< all but attention and every second matrix product (torchtitan's op-level policy)
  cheap,               ///< outputs of norms and of the activation, which cost no product
};

/// Where gradients of several micro-batches are summed before they are reduced.
enum class Unsynced {
  never,     ///< each micro-batch's gradients are reduced into the shards
  pipeline,  ///< whole gradients wait for the last micro-batch while pp > 1
  always,    ///< whole gradients wait whenever there are several micro-batches
};

/// How one runtime spends bytes: copies of a parameter by zero stage and precision, what each op saves,
/// buckets, what is gathered at a time, overheads outside the allocator. "Wide" is float32 (float64 under
/// float64).
struct MemoryProfile {
  // Copies of a parameter.

  /// Compute reads a copy in its own dtype beside wide values; false: wide values are cast where they are
  /// used.
  bool working_copy = true;
  bool keeps_sharded_copy = true;   ///< zero 3: shards of that copy stay; false: gathering makes it
  bool wide_gradients = true;       ///< gradients are kept wide; false: in the compute dtype
  bool wide_gradient_copy = false;  ///< float32 sums, never shared, beside gradients in the compute dtype
  bool frees_gradients = false;     ///< there are none between a step and the next backward
  /// Shards are rows of each parameter, so the first has most; false: equal parts of a flat storage.
  bool cuts_rows = false;
  std::int64_t alignment = 1;            ///< elements; each parameter of a flat storage begins at a multiple
  std::int64_t allocation = 512;         ///< bytes; tensors are allocated in multiples
  std::int64_t vocabulary_multiple = 1;  ///< the vocabulary is padded to a multiple of tp times this
  Unsynced unsynced = Unsynced::never;

  // What the ops of a block save.

  bool fused_norms = true;        ///< a norm keeps its input and statistics; false: wide intermediates
  bool fused_activation = true;   ///< silu(gate) is not kept beside gate, up and their product
  bool flash_attention = true;    ///< no scores are kept, only their log-sum-exp
  std::int64_t score_copies = 2;  ///< otherwise: tensors of the size of all scores, in the compute dtype
  /// Sequence parallel: column-parallel linears keep the gathered input; false: their own part, gathered
  /// again in backward.
  bool saves_gathered_input = false;
  /// Hidden-wide tensors that the backward of a feed-forward needs beyond what is saved; below 0: saved ones
  /// go first.
  std::int64_t hidden_in_backward = 1;
  bool fp8_inputs = false;  ///< under fp8_products linears keep their inputs in 8 bits
  Selective selective = Selective::nothing;

  // The loss, in tensors of the size of all logits at its peak.

  std::int64_t logits_in_compute = 1;
  std::int64_t logits_wide = 0;
  bool gathers_logits = false;  ///< each tp rank has the logits of the whole vocabulary
  bool chunks_loss = false;     ///< Problem::loss_chunk tokens at a time, their backward within forward

  // What comes and goes.

  std::int64_t unit_blocks = 1;  ///< blocks of one unit of sharding; 0: attention and feed-forward are units
  std::int64_t gathered_units = 2;  ///< zero 3: units whose parameters are whole at a time
  std::int64_t gathered_limit =
      0;                           ///< zero 3: bytes beyond which no unit is gathered ahead; 0: no such limit
  std::int64_t most_gathered = 0;  ///< zero 3: elements that are whole at a time at most; 0: no such limit
  bool ends_stay_gathered =
      false;                       ///< zero 3: input table, final norm and head are whole for the micro-batch
  std::int64_t reduced_units = 1;  ///< units whose gradients wait for peers at a time
  bool wide_reduction = false;     ///< gradients are widened into a buffer before they are reduced
  bool dummy_weight_gradients = false;  ///< Transformer Engine: one placeholder for each shape of weight
  bool inputs_of_step = false;          ///< token ids of the whole step, not of a micro-batch
  bool accumulates_in_place = true;  ///< weight gradients are added into the kept ones by the product itself
  std::int64_t received_messages = 2;  ///< of a pipeline rank with several chunks, before they are used
  std::int64_t sent_messages = 0;      ///< of a pipeline rank, before peers have read them
  std::int64_t bucket_bytes = 0;       ///< communication buckets, whatever the model

  // Outside of what tensors ask for.

  double fragmentation = 0.0;     ///< reserved but unused, as a share of what comes and goes in a step
  std::int64_t workspace = 0;     ///< bytes of matrix-product libraries
  std::int64_t context = 0;       ///< bytes of driver and kernels
  std::int64_t communicator = 0;  ///< bytes of one communicator; there is one for each used axis
};

}  // namespace ndmesh::plan
