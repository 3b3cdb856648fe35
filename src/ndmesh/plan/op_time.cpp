#include "ndmesh/plan/op_time.h"

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
constexpr std::array<double, 4> k_parts = {1, 2, 4, 8};

/// Short sequences and small heads leave fused attention's units idle.
double flash_saturation(const AttentionShape& shape) {
  constexpr double half_context = 128;
  constexpr double half_dim = 32;
  const double dim = (shape.query_dim + shape.value_dim) / 2;
  return shape.context / (shape.context + half_context) * dim / (dim + half_dim) * (128 + half_dim) / 128;
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
    for (const double parts : k_parts) {
      const double block =
          2 * tile.m * tile.n * (k / parts + rates.prologue) / (unit_flops * tile.efficiency);
      const double merged = parts > 1 ? 8 * m * n * batch * parts / rates.memory_bandwidth : 0;  // fp32 sums
      compute = std::min(compute, std::ceil(outputs * parts / rates.compute_units) * block + merged);
      if (outputs >= rates.compute_units) {
        break;  // enough blocks without cutting k
      }
    }
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
