#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "ndmesh/nn/decoder.h"

namespace ndmesh::serve {

struct Sampling {
  double temperature = 0.0;  ///< 0: greedy
  double top_p = 1.0;        ///< smallest set of tokens with at least this probability
  std::uint64_t seed = 1;    ///< token i depends on (seed, i) and the logits only
};

/// A decoder on one rank with all its weights, ready to generate. float32 unless `dtype` says otherwise.
std::shared_ptr<nn::Decoder> load_decoder(const std::filesystem::path& folder, DType dtype);

/// Continues `prompt` by at most `count` tokens and returns them; `emit` sees each as it is made (return false to stop).
/// RequestError when prompt plus count exceed the model's positions, the prompt is empty, or a token is outside the vocabulary.
std::vector<std::int64_t> generate(nn::Decoder& model, const std::vector<std::int64_t>& prompt, std::int64_t count,
                                   const Sampling& sampling, const std::function<bool(std::int64_t)>& emit = {});

}  // namespace ndmesh::serve
