#pragma once

#include <vector>

#include "ndmesh/parallel/trainable.h"

namespace ndmesh::parallel {

/// A module laid out over the batch ranks: what a training loop and its optimizer need of it, whichever strategy is
/// behind (replicate.h, fully_shard.h). One rank's view; used by that rank's thread. A step is
///
///   begin_micro_batch(last); forward; backward   once for each micro-batch; a pipeline (pipeline.h), whose forwards and
///                                                backwards alternate otherwise, calls begin_forward and begin_backward
///   finish_backward()                            gradients of trainables() are complete, and summed over all loss ranks
///   ... the optimizer changes values ...         only here: before, peers may still read them
///   parameters_changed()                         the next forward sees the new values; gradients start from nothing
///
/// Gradients are summed, never averaged: the loss is scaled by 1 / (tokens of the global batch) beforehand.
class DataParallel {
 public:
  virtual ~DataParallel() = default;

  /// Every parameter of the module: those that are trained, then those that are frozen (requires_grad false), each in
  /// the order of registration. Once asked for, here or below, the module can no longer be laid out anew.
  virtual const std::vector<OwnedParameter>& parameters() = 0;
  /// Those that are trained. Built once; an optimizer may keep references.
  virtual std::vector<Trainable>& trainables() = 0;

  /// `last`: no further micro-batch follows in this step, so reductions may start during its backward pass.
  virtual void begin_micro_batch(bool last) = 0;
  /// A forward follows whose backward does not come next.
  virtual void begin_forward() = 0;
  /// A backward follows that is not that of the last forward; `last`: no further backward follows in this step.
  virtual void begin_backward(bool last) = 0;
  virtual void finish_backward() = 0;
  /// Between these, nothing of the parameters is freed after a forward or backward: `unshard` starts to gather all of
  /// them, `reshard` frees them. For passes that follow each other closely. No-ops where every rank has all anyway.
  virtual void unshard() {}
  virtual void reshard() {}
  virtual void parameters_changed() = 0;

  /// The full value, or full gradient (between finish_backward and parameters_changed), of one parameter, on
  /// every rank. Collective: all ranks ask in the same order.
  virtual at::Tensor gather_value(const OwnedParameter& parameter) = 0;
  virtual at::Tensor gather_gradient(const Trainable& trainable) = 0;
};

}  // namespace ndmesh::parallel
