#include "ndmesh/train/initial_values.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/core/grad_mode.h>

#include <array>
#include <cmath>
#include <numbers>
#include <unordered_map>

#include "ndmesh/base/hash.h"
#include "ndmesh/parallel/box_views.h"

namespace ndmesh::train {
namespace {

/// Random access to a stream of standard normals; draws them four at a time.
class Normals {
 public:
  explicit Normals(std::uint64_t seed) : seed_(seed) {}

  double at(std::uint64_t index) {
    if (index / 4 != block_) {
      draw(index / 4);
    }
    return values_[index % 4];
  }

 private:
  void draw(std::uint64_t block) {
    at::Philox4_32 engine(seed_, /*subsequence=*/0, /*offset=*/block);
    for (std::size_t pair = 0; pair < 4; pair += 2) {  // Box-Muller, on uniforms in (0, 1)
      const double u = (engine() + 0.5) * 0x1p-32;
      const double v = (engine() + 0.5) * 0x1p-32;
      const double radius = std::sqrt(-2.0 * std::log(u));
      values_[pair] = radius * std::cos(2.0 * std::numbers::pi * v);
      values_[pair + 1] = radius * std::sin(2.0 * std::numbers::pi * v);
    }
    block_ = block;
  }

  std::uint64_t seed_;
  std::uint64_t block_ = ~std::uint64_t{0};
  std::array<double, 4> values_{};
};

/// What the rank holds of a parameter, one dense tensor a box. A box that lies densely is filled where it is.
class DenseBoxes {
 public:
  DenseBoxes(const parallel::OwnedParameter& parameter, std::int64_t rank)
      : boxes_(parameter.layout.boxes(rank)),
        views_(parallel::box_views(parameter.value, parameter.layout, rank)) {
    if (parameter.layout.local_elements(rank) < parameter.value.numel()) {
      parameter.value.zero_();  // padding
    }
  }

  /// fill(box, tensor) for each box that is not empty.
  template <class Fill>
  void fill(const Fill& fill_one) const {
    for (std::size_t i = 0; i < boxes_.size(); ++i) {
      if (views_[i].numel() == 0) {
        continue;
      }
      const at::Tensor dense =
          views_[i].is_contiguous() ? views_[i] : at::empty(views_[i].sizes(), views_[i].options());
      fill_one(boxes_[i], dense);
      if (!dense.is_same(views_[i])) {
        views_[i].copy_(dense);
      }
    }
  }

 private:
  std::vector<layout::Box> boxes_;
  std::vector<at::Tensor> views_;
};

/// Calls visit(global index, count) for each run of elements of `box` that is contiguous in the global
/// tensor, in order.
template <class Visit>
void for_each_run(const layout::Box& box, const layout::Shape& shape, std::size_t dim, std::int64_t base,
                  const Visit& visit) {
  if (dim + 1 == box.size()) {
    visit(base * shape[dim] + box[dim].start, box[dim].size);
    return;
  }
  for (std::int64_t i = box[dim].start; i < box[dim].start + box[dim].size; ++i) {
    for_each_run(box, shape, dim + 1, base * shape[dim] + i, visit);
  }
}

void fill_normal(const parallel::OwnedParameter& parameter, double deviation, std::uint64_t seed,
                 std::int64_t rank) {
  Normals normals(seed_for(seed, parameter.name));
  DenseBoxes(parameter, rank).fill([&](const layout::Box& box, const at::Tensor& dense) {
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, dense.scalar_type(), "fill_normal", [&] {
      auto* out = dense.data_ptr<scalar_t>();
      for_each_run(box, parameter.layout.shape(), 0, 0, [&](std::int64_t start, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
          *out++ = static_cast<scalar_t>(deviation * normals.at(static_cast<std::uint64_t>(start + i)));
        }
      });
    });
  });
}

}  // namespace

void fill_fresh(const std::vector<parallel::OwnedParameter>& parameters, const model::ModelSpec& model,
                std::uint64_t seed, std::int64_t rank) {
  const at::NoGradGuard no_grad;
  std::unordered_map<std::string, model::ParameterSpec> specs;
  for (model::ParameterSpec& spec : model.parameters()) {
    specs.emplace(spec.name, std::move(spec));
  }
  for (const parallel::OwnedParameter& parameter : parameters) {
    const model::ParameterSpec& spec = specs.at(parameter.name);
    if (spec.bias) {
      parameter.value.zero_();
    } else if (spec.shape.size() == 1) {
      parameter.value.fill_(model.unit_offset_norm ? 0.0 : 1.0);  // what multiplies is 1
    } else {
      fill_normal(parameter, model.initializer_range, seed, rank);
    }
  }
}

void fill_from(const ModelWeights& weights, const std::vector<parallel::OwnedParameter>& parameters,
               std::int64_t rank) {
  const at::NoGradGuard no_grad;
  for (const parallel::OwnedParameter& parameter : parameters) {
    DenseBoxes(parameter, rank).fill([&](const layout::Box& box, const at::Tensor& dense) {
      weights.read(parameter.name, box, dense);
    });
  }
}

}  // namespace ndmesh::train
