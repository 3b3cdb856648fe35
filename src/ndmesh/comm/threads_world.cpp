#include "ndmesh/comm/threads_world.h"

#include <algorithm>
#include <thread>

#include "ndmesh/comm/shared_call.h"

namespace ndmesh::comm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds spin_when_cores_suffice{20};
constexpr milliseconds recheck{100};
constexpr milliseconds grace{2000};
constexpr milliseconds longest_limit = std::chrono::hours(24 * 365);  // more would overflow the clock

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

microseconds spin_time(std::int64_t ranks) {
  return ranks <= static_cast<std::int64_t>(std::thread::hardware_concurrency()) ? spin_when_cores_suffice
                                                                                 : microseconds(0);
}

Limits bounded(const Limits& limits) {
  return {std::min(limits.setup, longest_limit), std::min(limits.first_step, longest_limit),
          std::min(limits.step, longest_limit), std::min(limits.save, longest_limit)};
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace

World::World(const mesh::Mesh& mesh, const Limits& limits)
    : mesh_(mesh),
      limits_(bounded(limits)),
      spin_time_(spin_time(mesh.world())),
      ranks_(static_cast<std::size_t>(mesh.world())),
      live_(mesh.world()) {}

std::shared_ptr<GroupState> World::group_state(const std::string& name,
                                               const std::vector<std::int64_t>& members) {
  const std::lock_guard lock(groups_mutex_);
  std::shared_ptr<GroupState>& state = groups_[{name, members}];
  if (!state) {
    state = std::make_shared<GroupState>();
  }
  return state;
}

void World::check_running() const {
  if (over_) {
    throw RunError(verdict_);
  }
}

bool World::spin(const Blocker& blocker) const {
  const Clock::time_point end = Clock::now() + spin_time_;
  do {
    for (int i = 0; i < 16; ++i) {
      if (blocker.ready()) {
        return true;
      }
      pause();
    }
    std::this_thread::yield();  // the peer may be waiting for this very core
  } while (!over_ && Clock::now() < end);
  return false;
}

void World::await(std::int64_t rank, const Blocker& blocker) {
  if (blocker.ready()) {
    return;
  }
  const Clock::time_point since = Clock::now();
  if (!spin(blocker)) {
    sleep(rank, blocker, since);
  }
}

void World::sleep(std::int64_t rank, const Blocker& blocker, Clock::time_point since) {
  std::unique_lock lock(mutex_);
  Rank& self = at(rank);
  self.blocker = &blocker;
  self.asleep = true;  // before ready() is asked: whoever makes it true afterwards sees a sleeper to wake
  ++asleep_;
  while (!over_ && !blocker.ready()) {
    judge(rank, since);
    if (!over_) {
      const auto left = since + limit_of(rank) - Clock::now();
      self.wake.wait_for(lock, std::clamp<Clock::duration>(left, milliseconds(1), recheck));
    }
  }
  --asleep_;
  self.asleep = false;
  self.blocker = nullptr;
  if (!blocker.ready()) {
    throw RunError(verdict_);
  }
}

void World::wake(const std::vector<std::int64_t>& ranks) {
  const auto asleep = [&](std::int64_t rank) { return at(rank).asleep.load(); };
  if (std::none_of(ranks.begin(), ranks.end(), asleep)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  for (const std::int64_t rank : ranks) {
    if (asleep(rank)) {
      at(rank).wake.notify_one();
    }
  }
}

void World::note_call(std::int64_t rank, std::shared_ptr<const CallNote> call) {
  Rank& self = at(rank);
  const std::lock_guard lock(self.note_mutex);
  self.last_call.swap(call);
}

void World::enter_phase(std::int64_t rank, Phase phase, std::string what) {
  Rank& self = at(rank);
  const std::lock_guard lock(self.note_mutex);
  self.phase = phase;
  self.what = std::move(what);
}

void World::condemn(std::string verdict, std::optional<std::int64_t> culprit) {
  const std::lock_guard lock(mutex_);
  end_run(std::move(verdict), culprit);
}

void World::end_run(std::string verdict, std::optional<std::int64_t> culprit) {
  if (over_) {
    return;
  }
  verdict_ = std::move(verdict);
  culprit_ = culprit;
  judged_ = Clock::now();
  over_ = true;
  for (Rank& rank : ranks_) {
    rank.wake.notify_one();
  }
  end_.notify_one();
}

void World::finish(std::int64_t rank, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  at(rank).done = true;
  --live_;
  if (error) {
    if (!over_) {
      end_run("dead: " + whereabouts(rank) + " when it failed: " + message_of(error), rank);
    }
    if (culprit_ == rank) {
      first_error_ = std::move(error);
    }
  }
  for (Rank& peer : ranks_) {  // sleepers find out whether they waited for this rank
    if (peer.asleep) {
      peer.wake.notify_one();
    }
  }
  end_.notify_one();
}

std::vector<std::int64_t> World::wait_for_end() {
  std::unique_lock lock(mutex_);
  end_.wait(lock, [&] { return live_ == 0 || over_; });
  const auto patience = [&] {
    milliseconds longest = grace;
    for (std::int64_t rank = 0; !late_ && rank < mesh_.world(); ++rank) {
      longest = std::max(longest, at(rank).done ? grace : limit_of(rank));
    }
    return longest;
  };
  if (live_ > 0) {
    end_.wait_until(lock, judged_ + patience(), [&] { return live_ == 0; });
  }
  std::vector<std::int64_t> running;
  for (std::int64_t rank = 0; rank < mesh_.world(); ++rank) {
    if (!at(rank).done) {
      running.push_back(rank);
    }
  }
  return running;
}

void World::rethrow(const std::vector<std::int64_t>& left_behind) const {
  if (!left_behind.empty()) {
    throw RanksStillRunning(verdict_ + "\nStill running, and left behind: " + ranks_text(left_behind) +
                            ". End the process.");
  }
  if (first_error_) {
    std::rethrow_exception(first_error_);
  }
  check_running();
}

}  // namespace ndmesh::comm
