#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/decoder.h"
#include "ndmesh/nn/kernels.h"

namespace ndmesh::nn {
namespace {

/// Llama 3.1's stretching: waves longer than the trained context are slowed by `factor`, short ones stay, and
/// between the two limits the frequency is interpolated.
double llama3_frequency(double frequency, const model::RopeScaling& scaling) {
  const double trained = static_cast<double>(scaling.original_max_positions);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength > trained / scaling.low_freq_factor) {
    return frequency / scaling.factor;
  }
  if (wavelength < trained / scaling.high_freq_factor) {
    return frequency;
  }
  const double smooth =
      (trained / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

double stretched(double frequency, const model::RopeScaling& scaling) {
  switch (scaling.kind) {
    case model::RopeScaling::Kind::none:
      return frequency;
    case model::RopeScaling::Kind::linear:
      return frequency / scaling.factor;
    case model::RopeScaling::Kind::llama3:
      return llama3_frequency(frequency, scaling);
  }
  return frequency;
}

}  // namespace

RotaryTable::RotaryTable(const model::ModelSpec& spec, at::ScalarType dtype, bool local)
    : dtype_(wide_dtype(dtype)), frequencies_(at::empty({spec.rotary_dim() / 2}, at::kDouble)) {
  const bool own_theta = local && spec.rope_local_theta;
  const double theta = own_theta ? *spec.rope_local_theta : spec.rope_theta;
  const model::RopeScaling scaling = own_theta ? model::RopeScaling() : spec.rope_scaling;
  for (std::int64_t i = 0; i < spec.rotary_dim() / 2; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(spec.rotary_dim());
    frequencies_[i] = stretched(std::pow(theta, -exponent), scaling);
  }
}

RotaryTable::Tables RotaryTable::range(std::int64_t start, std::int64_t length) {
  const std::int64_t needed = start + length;
  const std::int64_t held = all_.cos_SD2.defined() ? all_.cos_SD2.size(0) : 0;
  if (needed > held) {
    const MemoryScope scope(MemoryCategory::workspace);
    const at::NoGradGuard no_grad;
    const at::Tensor positions = at::arange(std::max(needed, 2 * held), at::kDouble);
    const at::Tensor angles = at::outer(positions, frequencies_);
    all_ = {angles.cos().to(dtype_), angles.sin().to(dtype_)};
  }
  return {all_.cos_SD2.narrow(0, start, length), all_.sin_SD2.narrow(0, start, length)};
}

}  // namespace ndmesh::nn
