#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ndmesh/comm/world.h"
#include "ndmesh/parallel/parameters.h"

namespace ndmesh::parallel {

/// The parameters of one unit of full sharding: the parts this rank owns, and the full ones while they are
/// gathered. Collectives are started and finished here, when fully_shard.cpp says so. One rank's thread.
class ShardedUnit : public std::enable_shared_from_this<ShardedUnit> {
 public:
  /// What happens in backward, told to whoever coordinates the units.
  struct Events {
    std::function<void(ShardedUnit&)> before_backward;
    std::function<void(ShardedUnit&, std::vector<at::Tensor> gradients)> gradients_ready;
  };

  ShardedUnit(std::vector<NamedParameter> parameters, comm::Communicator& communicator);
  ~ShardedUnit();

  void set_label(std::string label) { label_ = std::move(label); }
  void set_events(Events events) { events_ = std::move(events); }

  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const at::Tensor& value(std::size_t i) const { return values_.views[i]; }
  const at::Tensor& gradient(std::size_t i) const { return gradients_.views[i]; }

  // ---- full parameters
  void start_gather();   ///< no-op unless they are away
  void finish_gather();  ///< they can be read afterwards
  void free_gathered();
  /// No peer reads this rank's values any more: they may be changed.
  void settle();

  // ---- autograd
  /// Makes the full parameters functions of a node that receives their gradients. Call at the entry of a
  /// forward: backward then reaches the node after everything that was made since.
  void connect();
  /// `y`, with a node whose backward announces that this unit's backward begins.
  at::Tensor announce_backward(const at::Tensor& y);
  /// The parameters are plain leaves again; the last graph may go.
  void disconnect();

  // ---- gradients
  void start_reduce(std::vector<at::Tensor> gradients);
  void finish_reduce();
  /// Sums the owned gradients over dp_replicate; gradients that never came are zero. Only the first call of a
  /// step counts.
  void start_replica_reduce();
  void finish_replica_reduce();
  /// The next backward starts from nothing.
  void forget_gradients();

 private:
  enum class State { away, coming, here };

  void send_values_of_first_rank(comm::Communicator& communicator);
  std::vector<at::Tensor> full_views() const;
  void complete(std::vector<at::Tensor>& gradients) const;

  std::string label_ = "unit";
  Events events_;
  std::vector<NamedParameter> parameters_;
  comm::Group& shard_;
  comm::Group* replicas_;  ///< null without dp_replicate
  Flat values_;            ///< owned parts, wide dtype
  Flat gradients_;
  at::Tensor full_;  ///< flat storage of the full parameters; memory comes and goes
  State state_ = State::away;
  bool connected_ = false;  ///< to a node that has not received gradients yet
  bool has_gradients_ = false;
  bool summed_over_replicas_ = false;
  comm::Work gather_, reduce_, replica_reduce_;
};

}  // namespace ndmesh::parallel
