#include "ndmesh/serve/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ndmesh/base/error.h"
#include "ndmesh/base/hash.h"

namespace ndmesh::serve {
namespace {

/// Uniform in [0, 1), 53 bits.
double uniform(std::uint64_t seed, std::uint64_t index) {
  return static_cast<double>(random_at(seed, index) >> 11) * 0x1p-53;
}

/// Probabilities up to a common factor, the largest 1.
std::vector<double> weights_of(std::span<const double> logits, double largest, double temperature) {
  std::vector<double> weights(logits.size());
  std::transform(logits.begin(), logits.end(), weights.begin(),
                 [&](double logit) { return std::exp((logit - largest) / temperature); });
  return weights;
}

/// The likeliest tokens whose weights first reach `wanted`, likeliest first; the lower id among equals.
std::vector<std::int64_t> likeliest(const std::vector<double>& weights, double wanted) {
  std::vector<std::int64_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return weights[a] > weights[b]; });
  std::size_t kept = 0;
  for (double sum = 0; kept < order.size() && sum < wanted; ++kept) {
    sum += weights[order[kept]];
  }
  order.resize(kept);
  return order;
}

}  // namespace

void check(const Sampling& sampling) {
  Problems problems;
  if (!(sampling.temperature >= 0) || std::isinf(sampling.temperature)) {
    problems.add(fmt::format("temperature is {}; 0 (greedy) or more is allowed", sampling.temperature));
  }
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    problems.add(fmt::format("top_p is {}; more than 0 and at most 1 is allowed", sampling.top_p));
  }
  problems.raise();
}

std::int64_t sample(std::span<const double> logits, const Sampling& sampling, std::uint64_t index) {
  const auto finite = [](double logit) { return std::isfinite(logit); };
  if (logits.empty() || !std::all_of(logits.begin(), logits.end(), finite)) {
    throw RunError(fmt::format(
        "the logits of token {} are not finite: the weights are damaged, or overflow in this dtype", index));
  }
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (sampling.temperature == 0) {
    return largest - logits.begin();
  }
  const std::vector<double> weights = weights_of(logits, *largest, sampling.temperature);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const std::vector<std::int64_t> kept = likeliest(weights, sampling.top_p * total);
  double left = 0;
  for (const std::int64_t token : kept) {
    left += weights[token];
  }
  left *= uniform(sampling.seed, index);
  for (const std::int64_t token : kept) {
    left -= weights[token];
    if (left < 0) {
      return token;
    }
  }
  return kept.back();  // rounding may leave a rest
}

}  // namespace ndmesh::serve
