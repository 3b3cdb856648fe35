#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ndmesh/comm/world.h"
#include "ndmesh/job/job.h"
#include "ndmesh/parallel/parameters.h"

namespace ndmesh::parallel {

/// The parameters of one unit of sharding: the parts this rank owns, and the full ones: while they are gathered, or,
/// where only gradients or optimizer state are cut, always. Then owned values are rows of the full ones (unless those
/// are bfloat16), and where gradients are not cut, owned gradients are rows of full ones. Collectives are started and
/// finished here, when ShardedModule says so. Where all of it is offloaded, owned values and gradients are in host memory; a
/// gather first brings the owned rows, and what a reduction brings is added up on the host. One rank's thread.
class ShardedUnit : public std::enable_shared_from_this<ShardedUnit> {
 public:
  /// What happens in backward, told to whoever coordinates the units.
  struct Events {
    std::function<void(ShardedUnit&)> before_backward;
    std::function<void(ShardedUnit&, std::vector<at::Tensor> gradients)> gradients_ready;
    /// Of a unit without trained parameters, or whose gradients are withheld.
    std::function<void(ShardedUnit&)> after_backward;
  };

  /// `zero`: 1 optimizer state is cut; 2 gradients too; 3 parameters too. `offload`: as ShardOptions.
  ShardedUnit(std::vector<NamedParameter> parameters, comm::Communicator& communicator, std::int64_t zero,
              job::Offload offload);
  ~ShardedUnit();

  std::int64_t zero() const { return zero_; }
  job::Offload offload() const { return offload_; }
  /// Whether all owned values and gradients are in host memory, and whether the value of one parameter is.
  bool all_on_host() const { return offload_ == job::Offload::all; }
  bool is_value_on_host(std::size_t i) const { return all_on_host() || (values_on_host_ && i < trained_); }
  void set_label(std::string label) { label_ = std::move(label); }
  void set_events(Events events) { events_ = std::move(events); }

  /// Those that are trained, then the frozen ones, which have no gradient.
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  std::size_t trained() const { return trained_; }
  const at::Tensor& value(std::size_t i) const { return values_[i]; }
  const at::Tensor& gradient(std::size_t i) const { return gradients_.views[i]; }

  // ---- full parameters
  void start_gather();   ///< no-op unless they are away, or old
  void finish_gather();  ///< they can be read afterwards
  void free_gathered();  ///< no-op unless parameters are cut
  /// Owned values have changed: what was gathered is old.
  void values_changed();
  /// Bytes that gathering takes, and whether they are taken now; 0 unless parameters are cut.
  std::int64_t gathered_bytes() const;
  bool is_gathered() const { return state_ != State::away; }
  /// No peer reads this rank's values any more: they may be changed.
  void settle();

  // ---- autograd
  /// A forward follows: it gets a node of its own, whatever earlier forwards still wait for their backward.
  void begin_forward() { connected_ = false; }
  /// Makes the full parameters functions of a node (zero 1: one each) that receives their gradients. Call at the entry of a
  /// forward: backward then reaches the node after everything that was made since.
  void connect();
  /// `y`, with a node whose backward announces that this unit's backward begins.
  at::Tensor announce_backward(const at::Tensor& y);
  /// `x`, with a node whose backward announces that this unit's backward is done: for one without trained parameters,
  /// whose gradients would say so.
  at::Tensor announce_end_of_backward(const at::Tensor& x);
  /// The parameters are plain leaves again; the last graph may go.
  void disconnect();

  // ---- gradients
  /// Starts to reduce `gradients`; under zero 1 the whole ones, which have taken in all, when these are the `last` of a
  /// step.
  void start_reduce(std::vector<at::Tensor> gradients, bool last);
  /// Whether backward still has to come to a use of the unit. Its node collects the gradients of all uses, unless the
  /// body runs again in backward: then it receives those of each use apart.
  bool has_uses_to_come() const { return uses_ > 0; }
  void finish_reduce();
  /// Of a unit that took no part in the last micro-batch: what earlier ones left. No-op for others.
  void reduce_rest();
  /// Sums the owned gradients over dp_replicate; gradients that never came are zero. Only the first call of a
  /// step counts.
  void start_replica_reduce();
  void finish_replica_reduce();
  /// The next backward starts from nothing.
  void forget_gradients();

 private:
  enum class State { away, coming, here };

  void make_values();
  /// Owned rows of parameters `first` to `end`: flat storages of their own, in `dtype`.
  void own_values(std::size_t first, std::size_t end, at::ScalarType dtype);
  void make_gradients();
  void send_values_of_first_rank(comm::Communicator& communicator);
  std::vector<at::Tensor> full_views() const;
  std::vector<at::Tensor> values_from_host() const;
  /// Of each full tensor, the rows that this rank owns.
  std::vector<at::Tensor> owned_rows(const std::vector<at::Tensor>& full) const;
  void connect_all();
  void connect_each();
  void take_in(std::size_t parameter, const at::Tensor& gradient);
  void start_whole_reduce();
  void make_arriving();
  void take_arriving();
  void complete(std::vector<at::Tensor>& gradients) const;

  std::string label_ = "unit";
  Events events_;
  std::vector<NamedParameter> parameters_;
  std::size_t trained_;  ///< so many of them, the first
  comm::Group& shard_;
  comm::Group* replicas_;  ///< null without dp_replicate
  std::int64_t zero_;
  job::Offload offload_;
  bool values_on_host_;  ///< of trained parameters
  /// Owned parts: of trained parameters in the wide dtype, of frozen ones as they are gathered; or rows of full_.
  std::vector<at::Tensor> values_;
  Flat gradients_;
  Flat whole_gradients_;  ///< zero 1: of all rows; gradients_ are rows of it
  Flat arriving_;    ///< where gradients are on the host: what a reduction brings, until it is sent there
  at::Tensor full_;  ///< flat storage of the full parameters; memory comes and goes
  State state_ = State::away;
  std::size_t arrived_ = 0;  ///< zero 1: parameters whose gradient has come, of the use that backward is at
  std::int64_t uses_ = 0;    ///< forwards whose backward has not begun
  bool connected_ = false;   ///< to a node that has not received gradients yet
  bool has_gradients_ = false;
  bool adds_ = false;     ///< what arrives, to what an earlier micro-batch left
  bool reduced_ = false;  ///< zero 1: whole gradients, in this step
  bool summed_over_replicas_ = false;
  comm::Work gather_, reduce_, replica_reduce_;
};

}  // namespace ndmesh::parallel
