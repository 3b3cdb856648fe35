#include "ndmesh/nn/kv_cache.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include "ndmesh/base/error.h"
#include "ndmesh/base/memory_category.h"

namespace ndmesh::nn {

KvCache::KvCache(const model::ModelSpec& spec, std::int64_t batch, std::int64_t capacity,
                 at::ScalarType dtype)
    : capacity_(capacity) {
  TORCH_CHECK(batch > 0 && capacity > 0, "a cache holds at least one sequence of one token, not ", batch,
              " of ", capacity);
  const MemoryScope scope(MemoryCategory::kv_cache);
  const std::vector<std::int64_t> shape = {batch, capacity, spec.kv_heads, spec.head_dim};
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    keys_BSKD_.push_back(at::empty(shape, dtype));
    values_BSKD_.push_back(at::empty(shape, dtype));
  }
}

std::pair<at::Tensor, at::Tensor> KvCache::append(std::int64_t layer, const at::Tensor& k_BSKD,
                                                  const at::Tensor& v_BSKD) {
  const std::int64_t tokens = k_BSKD.size(1);
  if (tokens > capacity_ - length_) {
    throw RequestError(fmt::format("the cache has room for {} tokens and holds {}: {} more do not fit",
                                   capacity_, length_, tokens));
  }
  at::Tensor& keys = keys_BSKD_.at(static_cast<std::size_t>(layer));
  at::Tensor& values = values_BSKD_.at(static_cast<std::size_t>(layer));
  keys.narrow(1, length_, tokens).copy_(k_BSKD);
  values.narrow(1, length_, tokens).copy_(v_BSKD);
  return {keys.narrow(1, 0, length_ + tokens), values.narrow(1, 0, length_ + tokens)};
}

void KvCache::advance(std::int64_t tokens) {
  TORCH_CHECK(tokens >= 0 && tokens <= capacity_ - length_, "a cache of ", capacity_, " tokens that holds ",
              length_, " cannot take ", tokens, " more");
  length_ += tokens;
}

std::int64_t KvCache::bytes() const {
  std::int64_t total = 0;
  for (const std::vector<at::Tensor>* tensors : {&keys_BSKD_, &values_BSKD_}) {
    for (const at::Tensor& tensor : *tensors) {
      total += static_cast<std::int64_t>(tensor.nbytes());
    }
  }
  return total;
}

}  // namespace ndmesh::nn
