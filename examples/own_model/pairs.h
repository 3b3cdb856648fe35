#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cstdint>
#include <random>

/// Made-up data: every word belongs to a topic, every text has one, and a document answers a query when theirs is the same.
namespace own_model {

struct Pairs {
  at::Tensor queries_BW, documents_BW;  ///< words
  at::Tensor answers_B;                 ///< 1 where the document answers the query, else 0
};

/// Pairs `first` .. `first` + `count` - 1. Each depends on its number alone, so every split over ranks sees the same data.
inline Pairs pairs(std::int64_t first, std::int64_t count, std::int64_t vocabulary, at::ScalarType dtype) {
  constexpr std::int64_t words = 6, topics = 10;
  Pairs pairs = {at::empty({count, words}, at::kLong), at::empty({count, words}, at::kLong),
                 at::empty({count}, at::TensorOptions().dtype(at::kDouble))};
  for (std::int64_t i = 0; i < count; ++i) {
    std::mt19937_64 random(static_cast<std::uint64_t>(first + i));
    const auto below = [&](std::int64_t limit) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
    };
    const std::int64_t topic = below(topics);
    const bool answers = below(2) == 1;
    const std::int64_t other = answers ? topic : (topic + 1 + below(topics - 1)) % topics;
    pairs.answers_B.data_ptr<double>()[i] = answers ? 1 : 0;
    for (std::int64_t w = 0; w < words; ++w) {
      pairs.queries_BW.data_ptr<std::int64_t>()[i * words + w] = topic + topics * below(vocabulary / topics);
      pairs.documents_BW.data_ptr<std::int64_t>()[i * words + w] =
          other + topics * below(vocabulary / topics);
    }
  }
  pairs.answers_B = pairs.answers_B.to(dtype);
  return pairs;
}

/// Sum over the pairs of -log p(what is so). A sum, not a mean: ranks and micro-batches add up, and the one division is by the
/// pairs of the whole batch.
inline at::Tensor loss_sum(const at::Tensor& odds_B, const at::Tensor& answers_B) {
  return at::softplus(odds_B).sub(odds_B * answers_B).sum();
}

}  // namespace own_model
