#pragma once

#include <torch/nn/module.h>

#include <cstdint>

namespace ndmesh::parallel {

enum class Recomputed : std::uint8_t {
  cheap,  ///< outputs of ndmesh's norms and activations (nn/functional.h): no product runs twice
  all,    ///< everything but the unit's input
};

/// Recomputation of activations (Chen et al., 2016): forward keeps less of `module`, backward runs it again.
///   splits       nothing
///   replicates   nothing
///   sends        nothing of its own; under full sharding the gather for backward serves it too
///   relieves     activations: of a unit only its input stays, or all but what is cheap
///   fails when   compute is what limits: `all` costs one more forward of the unit
///
/// Results are bitwise those without it. `module` is an nn::Unit whose body depends on nothing but its input, its
/// captures and its parameters (no dropout: none is built). Call it before or after the module is sharded, from the
/// rank's own thread; it must outlive its backward passes. RunError: `module` is no nn::Unit, or is recomputed
/// already.
void recompute(torch::nn::Module& module, Recomputed what);

/// What forward keeps of `module` for backward waits in host memory.
///   splits       nothing
///   replicates   nothing
///   sends        each kept tensor to the host in forward, and back in backward
///   relieves     activations: on the device there are those of one module at a time
///   fails when   the link to the host is slower than the compute that could hide it
///
/// Concerns what ndmesh's own operators keep (nn/functional.h), and the input of a module that is recomputed whole. Call it
/// after recompute, from the rank's own thread. Results are bitwise those without it. RunError: `module` is no nn::Unit.
void offload_activations(torch::nn::Module& module);

}  // namespace ndmesh::parallel
