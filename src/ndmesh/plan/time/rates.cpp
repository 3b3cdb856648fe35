#include "ndmesh/plan/time/rates.h"

#include <fmt/format.h>

#include "ndmesh/base/error.h"

namespace ndmesh::plan {
namespace {

/// Of one float32 gradient element: read for the norm, then read and written to be scaled.
constexpr double clipping_bytes = 12;

void check_known(const Problem& problem) {
  const cluster::Device& device = problem.cluster.device;
  Problems problems;
  if (device.peak_flops(problem.precision.compute) <= 0) {
    problems.add(fmt::format(
        "the peak FLOP/s of {} products of device {} is not known, so there is no step time: state "
        "it in a cluster file or choose another precision.dtype",
        name_of(problem.precision.compute), device.name));
  }
  if (problem.precision.fp8_products && device.fp8_flops <= 0) {
    problems.add(
        fmt::format("device {} has no known peak of 8-bit products: plan without them", device.name));
  }
  if (device.memory_bandwidth <= 0) {
    problems.add(
        fmt::format("the memory bandwidth of device {} is not known, so there is no step time: state it in a "
                    "cluster file",
                    device.name));
  }
  problems.raise();
}

double flash_efficiency(AttentionKernel kernel, const Constants& constants) {
  switch (kernel) {
    case AttentionKernel::unfused:
    case AttentionKernel::flash1:
      return constants["flash1_efficiency"];
    case AttentionKernel::flash2:
      return constants["flash2_efficiency"];
    case AttentionKernel::flash3:
      return constants["flash3_efficiency"];
  }
  return 0;
}

}  // namespace

double host_bandwidth(const cluster::Device& device) {
  return device.host_bandwidth <= 0 && device.is_host() ? device.memory_bandwidth / 2 : device.host_bandwidth;
}

Rates rates_of(const Problem& problem, const Constants& constants) {
  check_known(problem);
  const cluster::Device& device = problem.cluster.device;
  const double peak = device.peak_flops(problem.precision.compute);
  const double flash = peak * flash_efficiency(problem.profile.time.attention, constants);
  Rates rates;
  rates.attention_flops = peak * constants["matmul_efficiency"];
  rates.product_flops =
      problem.precision.fp8_products ? device.fp8_flops * constants["fp8_efficiency"] : rates.attention_flops;
  rates.flash_forward = flash;
  rates.flash_backward = flash * constants["attention_backward"];
  rates.memory_bandwidth = device.memory_bandwidth * constants["memory_efficiency"];
  rates.compute_units = constants["compute_units"];
  rates.misaligned = constants["misaligned_efficiency"];
  rates.prologue = constants["matmul_prologue"];
  rates.weight_gradient_slowdown = constants["weight_gradient_slowdown"];
  rates.kernel_seconds = constants["kernel_seconds"];
  rates.host_seconds = problem.profile.time.graphs ? 0 : constants["host_seconds"];
  rates.expert_host_seconds = constants["expert_host_seconds"];
  rates.cast_bytes = problem.precision.fp8_products ? constants["cast_bytes"] : 0;
  rates.score_bytes = constants["score_bytes"];
  rates.element_bytes = static_cast<double>(bytes_of(problem.precision.compute));
  rates.overlap_slowdown = constants["overlap_slowdown"];
  rates.optimizer_bytes =
      constants["optimizer_bytes"] - (problem.profile.time.clips_gradients ? 0 : clipping_bytes);
  rates.host_optimizer_bandwidth = constants["host_optimizer_bandwidth"];
  rates.host_bandwidth = host_bandwidth(device);
  rates.micro_batch_seconds = constants["micro_batch_seconds"];
  rates.step_seconds = constants["step_seconds"];
  rates.straggler = constants["straggler"];
  return rates;
}

}  // namespace ndmesh::plan
