#include "ndmesh/train/newton_schulz.h"

#include <ATen/Functions.h>

namespace ndmesh::train {
namespace {

constexpr int iterations = 5;
constexpr double a = 3.4445;
constexpr double b = -4.7750;
constexpr double c = 2.0315;
constexpr double least_norm = 1e-7;

}  // namespace

at::Tensor orthogonalised(const at::Tensor& x) {
  const bool tall = x.size(0) > x.size(1);  // the product with its own transpose is then the small one
  at::Tensor y = tall ? x.t() : x;
  y = y.div(y.norm().clamp_min(least_norm));
  for (int i = 0; i < iterations; ++i) {
    const at::Tensor gram = at::mm(y, y.t());
    const at::Tensor polynomial = at::addmm(gram, gram, gram, /*beta=*/b, /*alpha=*/c);
    y = at::addmm(y, polynomial, y, /*beta=*/a);
  }
  return tall ? y.t() : y;
}

}  // namespace ndmesh::train
