#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "ndmesh/model/model_spec.h"

namespace ndmesh::nn {

/// Keys and values of one generated batch, all layers; memory for `capacity` tokens is taken at once, booked
/// as MemoryCategory::kv_cache. One thread.
class KvCache {
 public:
  KvCache(const model::ModelSpec& spec, std::int64_t batch, std::int64_t capacity, at::ScalarType dtype);

  std::int64_t length() const { return length_; }
  std::int64_t capacity() const { return capacity_; }
  /// Writes the new keys and values of `layer` behind what is held and returns all of them (views, BSKD).
  /// RequestError when capacity is exceeded.
  std::pair<at::Tensor, at::Tensor> append(std::int64_t layer, const at::Tensor& k_BSKD,
                                           const at::Tensor& v_BSKD);
  /// After the last layer: the new tokens count as held.
  void advance(std::int64_t tokens);
  /// What the cache takes: 2 * layers * batch * capacity * kv_heads * head_dim numbers.
  std::int64_t bytes() const;

 private:
  std::vector<at::Tensor> keys_BSKD_;
  std::vector<at::Tensor> values_BSKD_;
  std::int64_t length_ = 0;
  std::int64_t capacity_ = 0;
};

}  // namespace ndmesh::nn
