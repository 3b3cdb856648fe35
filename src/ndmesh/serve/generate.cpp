#include "ndmesh/serve/generate.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "ndmesh/base/error.h"
#include "ndmesh/nn/kv_cache.h"

namespace ndmesh::serve {
namespace {

using Tokens = std::vector<std::int64_t>;

constexpr std::int64_t prompt_piece = 256;  ///< tokens whose logits exist at a time

/// The longest sequence and the key of config.json that limits it.
std::pair<std::int64_t, const char*> longest(const model::ModelSpec& spec) {
  if (spec.sliding_window && *spec.sliding_window < spec.max_positions) {
    return {*spec.sliding_window, "sliding_window, and longer texts are not built"};
  }
  return {spec.max_positions, "max_position_embeddings"};
}

void check_request(const model::ModelSpec& spec, const Tokens& prompt, std::int64_t count) {
  Problems problems;
  if (prompt.empty()) {
    problems.add("the prompt is empty; give at least one token");
  }
  const auto outside = std::find_if(prompt.begin(), prompt.end(),
                                    [&](std::int64_t token) { return token < 0 || token >= spec.vocab; });
  if (outside != prompt.end()) {
    problems.add(fmt::format("token {} of the prompt is {}; the model's vocabulary is 0 to {}",
                             outside - prompt.begin(), *outside, spec.vocab - 1));
  }
  const auto length = static_cast<std::int64_t>(prompt.size());
  const auto [limit, key] = longest(spec);
  if (count < 0) {
    problems.add(fmt::format("count is {}; 0 or more is allowed", count));
  } else if (count > limit - length) {
    problems.add(
        fmt::format("a prompt of {} tokens and a count of {} are more than the model's {} positions ({}); "
                    "set count to at most {}",
                    length, count, limit, key, std::max<std::int64_t>(limit - length, 0)));
  }
  problems.raise();
}

/// One text as it grows.
class Continuation {
 public:
  Continuation(nn::Decoder& model, std::int64_t capacity)
      : model_(model), cache_(model.spec(), 1, capacity, model.head_weight().scalar_type()) {}

  /// Logits behind the last of `tokens`, which follow what was read before.
  std::span<const double> read(const Tokens& tokens) {
    const at::Tensor ids_BS = at::tensor(tokens, at::kLong).unsqueeze(0);
    for (const at::Tensor& piece_BS : ids_BS.split(prompt_piece, 1)) {
      logits_V_ =
          model_.logits(piece_BS, &cache_).select(0, 0).select(0, piece_BS.size(1) - 1).to(at::kDouble);
    }
    return {logits_V_.const_data_ptr<double>(), static_cast<std::size_t>(logits_V_.numel())};
  }

 private:
  nn::Decoder& model_;
  nn::KvCache cache_;
  at::Tensor logits_V_;
};

}  // namespace

Tokens generate(nn::Decoder& model, const Tokens& prompt, std::int64_t count, const Sampling& sampling,
                const std::function<bool(std::int64_t)>& emit) {
  check(sampling);
  const model::ModelSpec& spec = model.spec();
  check_request(spec, prompt, count);
  Tokens made;
  if (count == 0) {
    return made;
  }
  const at::NoGradGuard no_grad;
  Continuation text(model,
                    static_cast<std::int64_t>(prompt.size()) + count - 1);  // the last token is never read
  Tokens unread = prompt;
  while (true) {
    const std::int64_t token = sample(text.read(unread), sampling, made.size());
    made.push_back(token);
    const bool wanted = !emit || emit(token);
    const bool ends = !sampling.ignore_eos && std::find(spec.eos_tokens.begin(), spec.eos_tokens.end(),
                                                        token) != spec.eos_tokens.end();
    if (!wanted || ends || std::ssize(made) == count) {
      return made;
    }
    unread = {token};
  }
}

}  // namespace ndmesh::serve
