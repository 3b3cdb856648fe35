#pragma once

#include "ndmesh/plan/problem.h"
#include "ndmesh/plan/profile/constants.h"

namespace ndmesh::plan {

/// Figures of the device, by data sheet and constants, as the time model multiplies them.
struct Rates {
  double product_flops = 0;    ///< FLOP/s of a large product of linear layers
  double attention_flops = 0;  ///< the same of products inside attention, never in 8 bits
  double flash_forward = 0;    ///< FLOP/s of fused attention, long sequences
  double flash_backward = 0;
  double memory_bandwidth = 0;  ///< bytes/s that kernels reach
  double compute_units = 0;     ///< blocks that run at once
  double misaligned = 1;        ///< share of its rate that a product keeps whose n or k is no multiple of 8
  double prologue = 0;          ///< elements of k that starting a block costs
  double weight_gradient_slowdown = 1;
  double kernel_seconds = 0;       ///< shortest kernel
  double host_seconds = 0;         ///< to launch one; 0 with graphs
  double expert_host_seconds = 0;  ///< of the host in one pass of a layer with experts, beside launches
  double score_bytes = 0;
  double cast_bytes = 0;     ///< moved for one element of an 8-bit product's operands; 0 for other formats
  double element_bytes = 2;  ///< of the compute dtype
  double overlap_slowdown = 0;
  double optimizer_bytes = 0;  ///< moved for one element that the optimizer updates
  double host_optimizer_bandwidth = 0;
  double host_bandwidth = 0;
  double micro_batch_seconds = 0;  ///< of the host, for one micro-batch on one stage
  double step_seconds = 0;
  double straggler = 0;
};

/// Bytes/s between a device and host memory, in one direction; 0: not known. A core's memory is the host's own: a
/// copy reads and writes it.
double host_bandwidth(const cluster::Device& device);

/// RequestError when the peak of the job's number format or the memory bandwidth of the device is not known.
Rates rates_of(const Problem& problem, const Constants& constants);

}  // namespace ndmesh::plan
