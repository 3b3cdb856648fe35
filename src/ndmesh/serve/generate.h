#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "ndmesh/nn/decoder.h"
#include "ndmesh/serve/sampler.h"

namespace ndmesh::serve {

/// A decoder on one rank with all its weights, ready to generate: float64, float32 or bfloat16, whatever the
/// dtype of the files, in one flat storage. What train::ModelWeights warns of goes to the log.
std::shared_ptr<nn::Decoder> load_decoder(const std::filesystem::path& folder, DType dtype);

/// Continues `prompt` by at most `count` tokens and returns them; `emit` sees each as it is made (return
/// false to stop). Ends behind a token that ends a text (config.json eos_token_id), which is returned too,
/// unless sampling.ignore_eos. RequestError, all at once, when prompt plus count exceed the model's
/// positions, the prompt is empty, a token is outside the vocabulary, or the sampling is impossible. Takes
/// memory for prompt and count at once, and computes the prompt in pieces.
std::vector<std::int64_t> generate(nn::Decoder& model, const std::vector<std::int64_t>& prompt,
                                   std::int64_t count, const Sampling& sampling,
                                   const std::function<bool(std::int64_t)>& emit = {});

}  // namespace ndmesh::serve
