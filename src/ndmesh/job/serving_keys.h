#pragma once

#include <cstdint>

namespace ndmesh::job {

/// How weights are stored for serving: fp8 and int8 a byte each, int4 half a byte; all but bfloat16 with
/// scales.
enum class WeightFormat { bfloat16, fp8, int8, int4 };

/// How the cache of keys and values is stored.
enum class KvFormat { float32, bfloat16, fp8, int8 };

/// How room in the cache is given to a sequence.
enum class KvPolicy {
  reserve,  ///< the longest sequence's, from the start
  paged,    ///< block by block, as it grows
  prefix,   ///< as paged; a beginning that all sequences share is held once
};

/// The keys of section `plan` that only plan.task serve reads.
struct ServingKeys {
  std::int64_t context = 0;       ///< tokens of the longest sequence; 0: the model's positions
  std::int64_t mean_context = 0;  ///< tokens of a sequence on average; 0: as context
  std::int64_t concurrency = 0;   ///< sequences at once that are wanted; 0: as many as fit
  WeightFormat weights = WeightFormat::bfloat16;
  KvFormat kv_dtype = KvFormat::bfloat16;
  KvPolicy kv_policy = KvPolicy::paged;
  std::int64_t kv_block = 16;         ///< tokens
  double prefix_share = 0;            ///< of mean_context, that all sequences have in common
  std::int64_t prefill_chunk = 2048;  ///< tokens of one forward at most
  bool operator==(const ServingKeys&) const = default;
};

}  // namespace ndmesh::job
