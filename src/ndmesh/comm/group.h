#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ndmesh/comm/call.h"

namespace ndmesh::comm {

/// A collective that was started. Movable, not copyable; used by the thread of the rank that started it. It
/// keeps the tensors of the call alive. Destroyed without release() only while an error unwinds: peers that
/// still need this rank's part then get an error. wait() and release() do nothing when there is no started
/// collective.
class Work {
 public:
  class State;
  Work() = default;
  explicit Work(std::unique_ptr<State> state);
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;
  ~Work();

  bool started() const { return state_ != nullptr; }
  /// After wait(): whether release() would return at once, because no peer needs this rank's part any more.
  bool settled() const;
  /// Returns when the outputs of this rank are complete.
  void wait();
  /// Returns when, beyond that, no peer reads this rank's inputs any more: only then may they be changed or
  /// freed. Peers may need a later call of theirs to get there, so release as late as memory allows. Ends the
  /// Work.
  void release();

 private:
  std::unique_ptr<State> state_;
};

/// The ranks that differ in some axes, as one rank of them sees them. Every collective must be called by all
/// members, in the same order, with the same op, dtypes, and global sizes; a difference is a RunError on
/// every rank of the run that names the ranks and both calls. Calls of one handle come from one thread.
///
/// start_* begins and returns at once; the others are start + release. All tensors are dense and contiguous;
/// max and sum take float64, float32, bfloat16, float16 and int64, the other operations any dtype. Calls with
/// several tensors are one collective. Sums are accumulated in float32 or wider, in rank order whatever the
/// timing: a run repeats bitwise. `label` says in the code's own words what is sent ("layers.3 parameters"),
/// for traces and errors.
class Group {
 public:
  using Tensors = comm::Tensors;
  virtual ~Group() = default;

  int rank() const { return rank_; }  ///< this rank's index in the group
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<std::int64_t>& members() const { return members_; }  ///< world ranks, by index
  const std::string& name() const { return name_; }  ///< axes, as in "dp_shard" or "cp+dp_shard"

  /// In place.
  Work start_all_reduce(Tensors tensors, Reduction reduction, std::string label);
  /// outputs[i] is this rank's rows of the sum over ranks of inputs[i]: inputs[i] is cut along dim 0 by
  /// layout::split. An output may be of a wider floating dtype than its input. With `accumulate` the sum is
  /// added to the output.
  Work start_reduce_scatter(Tensors outputs, Tensors inputs, bool accumulate, std::string label);
  /// outputs[i] is the concatenation along dim 0, in rank order, of every rank's inputs[i], which must have
  /// the rows that layout::split gives. An output may be of another floating dtype: elements are rounded
  /// once.
  Work start_all_gather(Tensors outputs, Tensors inputs, std::string label);
  /// inputs[r] goes to rank r; outputs[r], no memory of an input, comes from rank r. Sizes may differ; both sides agree.
  Work start_all_to_all(Tensors outputs, Tensors inputs, std::string label);
  Work start_broadcast(Tensors tensors, int root, std::string label);
  /// Point to point; messages between two ranks arrive in order. Not ordered against collectives.
  Work start_send(at::Tensor tensor, int to, std::string label);
  Work start_recv(at::Tensor tensor, int from, std::string label);

  void all_reduce(Tensors tensors, Reduction reduction, std::string label);
  void reduce_scatter(Tensors outputs, Tensors inputs, bool accumulate, std::string label);
  void all_gather(Tensors outputs, Tensors inputs, std::string label);
  void all_to_all(Tensors outputs, Tensors inputs, std::string label);
  void broadcast(Tensors tensors, int root, std::string label);
  void send(at::Tensor tensor, int to, std::string label);
  void recv(at::Tensor tensor, int from, std::string label);
  void barrier(std::string label);

 protected:
  Group(std::string name, std::vector<std::int64_t> members, int rank)
      : name_(std::move(name)), members_(std::move(members)), rank_(rank) {}

 private:
  /// `call` has passed check_call.
  virtual std::unique_ptr<Work::State> start(Call call) = 0;
  Work checked_start(Call call);

  std::string name_;
  std::vector<std::int64_t> members_;
  int rank_;
};

/// What a transport implements behind Work.
class Work::State {
 public:
  virtual ~State() = default;
  virtual bool settled() const = 0;
  virtual void wait() = 0;
  virtual void release() = 0;
};

}  // namespace ndmesh::comm
