#pragma once

#include <string>
#include <vector>

#include "ndmesh/parallel/fully_shard.h"
#include "ndmesh/parallel/sharded_unit.h"

namespace ndmesh::parallel {

using UnitPointer = std::shared_ptr<ShardedUnit>;

/// A module whose units are sharded: decides when each gathers, frees and reduces. Made by fully_shard. One rank's
/// thread.
class ShardedModule final : public DataParallel {
 public:
  ShardedModule(std::vector<UnitPointer> units, UnitPointer root, const ShardOptions& options);
  ~ShardedModule() override;

  /// Lists what is owned of the parameters of `module`, which the units hold.
  void describe(const torch::nn::Module& module, comm::Communicator& communicator);
  /// Whether parameters() or trainables() were asked for.
  bool taken() const { return taken_; }
  /// An outer module's handle coordinates the units from now on.
  void hand_over();

  at::Tensor enter(ShardedUnit& unit, const at::Tensor& x);
  at::Tensor leave(ShardedUnit& unit, const at::Tensor& y);

  const std::vector<OwnedParameter>& parameters() override;
  std::vector<Trainable>& trainables() override;
  void begin_micro_batch(bool last) override;
  void begin_forward() override;
  void begin_backward(bool last) override;
  void finish_backward() override;
  void unshard() override;
  void reshard() override;
  void parameters_changed() override;
  at::Tensor gather_value(const OwnedParameter& p) override {
    return gather(p.value, p.value_on_host, p, "value of ");
  }
  at::Tensor gather_gradient(const Trainable& t) override {
    return gather(t.gradient, t.gradient_on_host, t, "gradient of ");
  }

 private:
  bool stays_gathered(const ShardedUnit& unit) const;
  void prefetch(const std::vector<ShardedUnit*>& order, const ShardedUnit& from, int direction);
  std::int64_t gathered_bytes() const;
  void before_backward(ShardedUnit& unit);
  void after_backward(ShardedUnit& unit);
  void gradients_ready(ShardedUnit& unit, std::vector<at::Tensor> gradients);
  void finish_pending();
  void start_replica_reduce(ShardedUnit& unit);
  void take();
  at::Tensor gather(const at::Tensor& owned, bool on_host, const OwnedParameter& parameter,
                    const std::string& label);

  std::vector<UnitPointer> units_;  ///< bottom-up, root last
  UnitPointer root_;  ///< keeps its parameters from forward to backward; may be null: it has none
  ShardOptions options_;
  comm::Communicator* communicator_ = nullptr;
  std::vector<OwnedParameter> owned_;
  std::vector<Trainable> trainables_;
  /// As the first step's forward entered them, which says what to prefetch in forward, and as it left them: in
  /// reverse, the order of backward. They differ where units lie in units.
  std::vector<ShardedUnit*> entered_, left_;
  bool order_known_ = false;
  ShardedUnit* pending_ = nullptr;           ///< its reduction runs while the next unit computes
  ShardedUnit* replica_reducing_ = nullptr;  ///< the last that started, in this step
  bool pending_is_last_ = false;             ///< no more gradients of it follow in this step
  bool last_ = true;
  bool in_backward_ = false;
  bool backward_is_next_ = true;  ///< that of the forward that runs
  bool held_ = false;             ///< between unshard and reshard
  bool taken_ = false;
  bool handed_over_ = false;
};

}  // namespace ndmesh::parallel
