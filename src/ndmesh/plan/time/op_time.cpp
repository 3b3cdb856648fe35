#include "ndmesh/plan/time/op_time.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace ndmesh::plan {
namespace {

struct Tile {
  double m, n;
  double efficiency;  // of the largest tile's rate: smaller ones read their operands more often
};
constexpr std::array<Tile, 8> tiles = {{{256, 128, 1.0},
                                        {128, 256, 1.0},
                                        {128, 128, 0.95},
                                        {256, 64, 0.85},
                                        {64, 256, 0.85},
                                        {128, 64, 0.8},
                                        {64, 128, 0.8},
                                        {64, 64, 0.65}}};

/// Short sequences and small heads leave fused attention's units idle.
double flash_saturation(const AttentionShape& shape) {
  constexpr double half_context = 128;
  constexpr double half_dim = 32;
  const double dim = (shape.query_dim + shape.value_dim) / 2;
  const double context = shape.context / shape.passes;
  return context / (context + half_context) * dim / (dim + half_dim) * (128 + half_dim) / 128;
}

/// Tensor cores want rows of whole 16 bytes.
bool is_aligned(double n, double k) {
  return std::fmod(n, 8) == 0 && std::fmod(k, 8) == 0;
}

}  // namespace

double product_seconds(const Rates& rates, const Product& product, double flops, double extra_bytes) {
  const auto [m, n, k, batch] = product;
  const double unit_flops = flops * (is_aligned(n, k) ? 1 : rates.misaligned) / rates.compute_units;
  double compute = INFINITY;
  for (const Tile& tile : tiles) {
    const double outputs = std::ceil(m / tile.m) * std::ceil(n / tile.n) * batch;
    const double area = tile.m * tile.n;
    const double rate = unit_flops * tile.efficiency;
    const double whole = std::ceil(outputs / rates.compute_units) * 2 * area * (k + rates.prologue) / rate;
    const double even = outputs / rates.compute_units * 2 * area * (k + rates.prologue) / rate;
    const double pieces =
        2 * area * rates.prologue / rate + 8 * area * rates.compute_units / rates.memory_bandwidth;
    compute = std::min(compute, std::min(whole, even + pieces));
  }
  const double bytes = rates.element_bytes * (m * k + k * n + m * n) * batch + extra_bytes;
  return rates.kernel_seconds + std::max(compute, bytes / rates.memory_bandwidth);
}

double cast_seconds(const Rates& rates, double elements) {
  return rates.cast_bytes > 0 ? move_seconds(rates, elements * rates.cast_bytes) : 0;
}

double move_seconds(const Rates& rates, double bytes) {
  return rates.kernel_seconds + bytes / rates.memory_bandwidth;
}

double score_products_seconds(const Rates& rates, const ScoreShape& shape) {
  constexpr double half_dim = 32;
  const auto seconds = [&](double dim) {
    return rates.kernel_seconds + 2 * shape.count() * dim * (dim + half_dim) / dim / rates.attention_flops;
  };
  return seconds(shape.attention.query_dim) + seconds(shape.attention.value_dim);
}

double flash_forward_seconds(const Rates& rates, const AttentionShape& shape) {
  return rates.kernel_seconds + shape.flops() / (rates.flash_forward * flash_saturation(shape));
}

double flash_backward_seconds(const Rates& rates, const AttentionShape& shape) {
  return rates.kernel_seconds + 2.5 * shape.flops() / (rates.flash_backward * flash_saturation(shape));
}

}  // namespace ndmesh::plan
