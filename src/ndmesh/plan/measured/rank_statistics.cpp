#include "ndmesh/plan/measured/rank_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ndmesh/base/hash.h"

namespace ndmesh::plan {
namespace {

std::int64_t pairs(std::int64_t n) {
  return n * (n - 1) / 2;
}

/// Pairs that are equal, in a sequence whose equal elements stand together.
template <typename Equal>
std::int64_t tied_pairs(const std::vector<std::size_t>& order, const Equal& equal) {
  std::int64_t tied = 0;
  std::size_t start = 0;
  for (std::size_t i = 1; i <= order.size(); ++i) {
    if (i < order.size() && equal(order[start], order[i])) continue;
    tied += pairs(static_cast<std::int64_t>(i - start));
    start = i;
  }
  return tied;
}

/// Sorts `values` and counts the pairs that stood the wrong way round; `buffer` is as long.
std::int64_t sort_counting(double* values, double* buffer, std::size_t count) {
  if (count < 2) return 0;
  const std::size_t half = count / 2;
  std::int64_t inversions =
      sort_counting(values, buffer, half) + sort_counting(values + half, buffer, count - half);
  std::size_t left = 0;
  std::size_t right = half;
  for (std::size_t i = 0; i < count; ++i) {
    const bool take_left = right == count || (left < half && values[left] <= values[right]);
    if (!take_left) inversions += static_cast<std::int64_t>(half - left);
    buffer[i] = take_left ? values[left++] : values[right++];
  }
  std::copy_n(buffer, count, values);
  return inversions;
}

std::vector<std::size_t> positions(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

}  // namespace

std::optional<double> kendall_tau_b(const std::vector<double>& x, const std::vector<double>& y) {
  std::vector<std::size_t> order = positions(x.size());
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return x[a] != x[b] ? x[a] < x[b] : y[a] != y[b] ? y[a] < y[b] : a < b;
  });
  const auto same_x = [&](std::size_t a, std::size_t b) { return x[a] == x[b]; };
  const auto same_y = [&](std::size_t a, std::size_t b) { return y[a] == y[b]; };
  const std::int64_t tied_x = tied_pairs(order, same_x);
  const std::int64_t tied_both =
      tied_pairs(order, [&](std::size_t a, std::size_t b) { return same_x(a, b) && same_y(a, b); });
  std::vector<double> sorted;
  for (const std::size_t i : order) sorted.push_back(y[i]);
  std::vector<double> buffer(sorted.size());
  const std::int64_t discordant = sort_counting(sorted.data(), buffer.data(), sorted.size());
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return y[a] < y[b]; });
  const std::int64_t tied_y = tied_pairs(order, same_y);

  const std::int64_t all = pairs(static_cast<std::int64_t>(x.size()));
  if (all == tied_x || all == tied_y) return std::nullopt;
  const std::int64_t concordant = all - tied_x - tied_y + tied_both - discordant;
  return static_cast<double>(concordant - discordant) /
         std::sqrt(static_cast<double>(all - tied_x) * static_cast<double>(all - tied_y));
}

double regret(const std::vector<double>& predicted, const std::vector<double>& measured) {
  const double least = *std::min_element(predicted.begin(), predicted.end());
  double picked = 0;
  double count = 0;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    if (predicted[i] != least) continue;
    picked += measured[i];
    count += 1;
  }
  return picked / count / *std::min_element(measured.begin(), measured.end()) - 1;
}

WeightedMean weighted_mean(const std::vector<double>& values, const std::vector<double>& weights) {
  constexpr std::size_t samples = 1000;
  constexpr std::uint64_t seed = 1979;
  const std::size_t count = values.size();
  const auto mean_of = [&](const auto& index_of) {
    double sum = 0;
    double weight = 0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += weights[index_of(i)] * values[index_of(i)];
      weight += weights[index_of(i)];
    }
    return sum / weight;
  };
  WeightedMean mean;
  mean.value = mean_of([](std::size_t i) { return i; });
  std::vector<double> means;
  for (std::size_t sample = 0; sample < samples; ++sample) {
    means.push_back(mean_of([&](std::size_t i) { return random_at(seed, sample * count + i) % count; }));
  }
  std::sort(means.begin(), means.end());
  mean.low = means[samples / 20];
  mean.high = means[samples - 1 - samples / 20];
  return mean;
}

}  // namespace ndmesh::plan
