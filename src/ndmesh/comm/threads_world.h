#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ndmesh/comm/world.h"

namespace ndmesh::comm {

struct GroupState;
using Clock = std::chrono::steady_clock;

/// "rank 3", "ranks 0, 1 and 4".
std::string ranks_text(const std::vector<std::int64_t>& ranks);

/// What a rank waits for. Its own thread owns it; while that one sleeps, others ask.
class Blocker {
 public:
  virtual ~Blocker() = default;
  virtual bool ready() const = 0;
  /// World ranks that still have to do their part.
  virtual std::vector<std::int64_t> missing() const = 0;
  /// The call, for messages.
  virtual std::string text() const = 0;
};

/// What the threads of one run share: who sleeps on what, who is done, and the verdict that ends the run. Any
/// thread may call any method; `rank` is the caller's own unless said otherwise.
///
/// A rank registers under `mutex_` before it sleeps and deregisters under it before it goes on. So whoever
/// holds the mutex and finds every live rank registered knows that nobody can change anything: verdicts are
/// certain, not guessed.
class World {
 public:
  World(const mesh::Mesh& mesh, const Limits& limits);

  const mesh::Mesh& mesh() const { return mesh_; }
  std::shared_ptr<GroupState> group_state(const std::string& name, const std::vector<std::int64_t>& members);

  bool over() const { return over_; }
  /// Throws the verdict when there is one.
  void check_running() const;

  /// Returns when `blocker` is ready; throws the verdict when one comes instead.
  void await(std::int64_t rank, const Blocker& blocker);
  /// Something that these ranks may be waiting for has changed.
  void wake(const std::vector<std::int64_t>& ranks);

  void note_call(std::int64_t rank, std::shared_ptr<const CallNote> call);
  void enter_phase(std::int64_t rank, Phase phase, std::string what);

  /// Ends the run. The first verdict counts. `culprit` is the rank whose own exception, if it comes to one,
  /// is what run_ranks rethrows.
  void condemn(std::string verdict, std::optional<std::int64_t> culprit = std::nullopt);
  /// The thread of `rank` is done, with `error` if it threw.
  void finish(std::int64_t rank, std::exception_ptr error);

  /// Called by run_ranks: returns when all ranks have finished, or those that have not are to be left behind.
  std::vector<std::int64_t> wait_for_end();
  /// Throws what ended the run, if anything did; `left_behind` as wait_for_end returned it.
  void rethrow(const std::vector<std::int64_t>& left_behind) const;

 private:
  struct Rank {
    std::condition_variable wake;
    std::atomic<bool> asleep{false};
    // Under mutex_:
    const Blocker* blocker = nullptr;  // while asleep
    bool done = false;
    // Under note_mutex, so that starting a call never meets another rank:
    mutable std::mutex note_mutex;
    Phase phase = Phase::setup;
    std::string what;
    std::shared_ptr<const CallNote> last_call;
  };

  Rank& at(std::int64_t rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& at(std::int64_t rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  bool spin(const Blocker& blocker) const;
  void sleep(std::int64_t rank, const Blocker& blocker, Clock::time_point since);
  Phase phase_of(std::int64_t rank) const;
  std::chrono::milliseconds limit_of(std::int64_t rank) const;

  // With mutex_ held:
  bool blocked(std::int64_t rank) const;
  void judge(std::int64_t rank, Clock::time_point since);
  std::optional<std::string> find_dead() const;
  std::optional<std::string> find_stuck() const;
  std::string late_text(std::int64_t rank) const;
  std::vector<std::int64_t> behind_delay(std::int64_t rank) const;
  void end_run(std::string verdict, std::optional<std::int64_t> culprit);

  std::string whereabouts(std::int64_t rank) const;
  std::string waiting_text(std::int64_t rank, const Blocker& blocker) const;

  const mesh::Mesh mesh_;
  const Limits limits_;
  const std::chrono::microseconds spin_time_;

  mutable std::mutex mutex_;
  std::condition_variable end_;
  std::vector<Rank> ranks_;
  std::int64_t live_;
  std::int64_t asleep_ = 0;
  std::atomic<bool> over_{false};
  bool late_ = false;
  Clock::time_point judged_;
  std::string verdict_;  // written once, before over_
  std::optional<std::int64_t> culprit_;
  std::exception_ptr first_error_;

  std::mutex groups_mutex_;
  std::map<std::pair<std::string, std::vector<std::int64_t>>, std::shared_ptr<GroupState>> groups_;
};

}  // namespace ndmesh::comm
