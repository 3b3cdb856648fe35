#pragma once

#include <cstdint>
#include <span>

namespace ndmesh::serve {

/// How the next token is chosen from its logits.
struct Sampling {
  double temperature = 0.0;  ///< 0: greedy
  double top_p = 1.0;        ///< smallest set of likeliest tokens with at least this probability
  std::uint64_t seed = 1;    ///< token i depends on (seed, i) and the logits only
  bool ignore_eos = false;   ///< go on behind a token that ends a text
};

/// RequestError, all at once, for a temperature below 0 or a top_p outside (0, 1].
void check(const Sampling& sampling);

/// Token number `index` of a text. Greedy takes the largest logit, the lowest id among equals. RunError when
/// a logit is not finite: the weights are damaged, or their dtype overflowed.
std::int64_t sample(std::span<const double> logits, const Sampling& sampling, std::uint64_t index);

}  // namespace ndmesh::serve
