#include "ndmesh/comm/threads_work.h"

#include <fmt/format.h>

#include <thread>

#include "ndmesh/base/race_visibility.h"
#include "ndmesh/comm/transfer.h"

namespace ndmesh::comm {
namespace {

double seconds(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}
double seconds_now() {
  return seconds(Clock::now());
}

/// Marks that its owner touches peers' memory. After a verdict nobody begins to, so peers that unwind need
/// only wait for those that have.
class MoverScope {
 public:
  MoverScope(const World& world, SharedCall& call) : call_(call) {
    ++call_.movers;  // before the verdict is looked at: see ~ThreadsWork
    if (world.over()) {
      --call_.movers;
      world.check_running();
    }
  }
  ~MoverScope() { --call_.movers; }
  MoverScope(const MoverScope&) = delete;
  MoverScope& operator=(const MoverScope&) = delete;

 private:
  SharedCall& call_;
};

}  // namespace

ThreadsWork::ThreadsWork(std::shared_ptr<World> world, std::shared_ptr<SharedCall> call, int slot,
                         const Group* group, const Observer* observer, Clock::time_point started)
    : world_(std::move(world)),
      call_(std::move(call)),
      slot_(slot),
      group_(group),
      observer_(observer),
      rank_(call_->ranks[static_cast<std::size_t>(slot)]) {
  record_.started = seconds(started);
}

ThreadsWork::~ThreadsWork() {
  if (released_) {
    return;
  }
  if (!world_->over() && !settled()) {
    world_->condemn(
        fmt::format("dead: rank {} gave up {} before it was done", rank_, call_->slot(slot_).note->text()),
        rank_);
  }
  while (world_->over() && call_->movers > 0) {
    std::this_thread::yield();
  }
}

bool ThreadsWork::settled() const {
  return waited_ && CallBlocker(*call_, slot_, Until::read).ready();
}

void ThreadsWork::wait() {
  if (waited_) {
    return;
  }
  record_.waited = seconds_now();
  world_->await(rank_, CallBlocker(*call_, slot_, Until::arrived));
  const double arrived = seconds_now();
  transfer();
  waited_ = true;
  note_read(call_->slot(slot_).call.outputs);
  record_.finished = seconds_now();
  record_.skew = arrived - record_.waited;
  record_.transfer = record_.finished - arrived;
}

void ThreadsWork::transfer() {
  if (call_->slot(slot_).note->op == Op::all_reduce) {
    bool last = false;
    {
      const MoverScope scope(*world_, *call_);
      last = reduce_chunks(*call_, slot_);
    }
    if (last) {
      world_->wake(call_->ranks);
    } else {
      world_->await(rank_, CallBlocker(*call_, slot_, Until::reduced));
    }
  } else {
    const MoverScope scope(*world_, *call_);
    move_to(*call_, slot_);
  }
  call_->slot(slot_).finished = true;
  if (++call_->finished == call_->size()) {
    world_->wake(call_->ranks);
  }
}

void ThreadsWork::release() {
  wait();
  const CallBlocker read(*call_, slot_, Until::read);
  if (!read.ready()) {
    const double begin = seconds_now();
    world_->await(rank_, read);
    record_.transfer += seconds_now() - begin;
  }
  released_ = true;
  report();
  Call& mine = call_->slot(slot_).call;
  note_written(mine.inputs);
  mine.outputs.clear();  // peers that come late keep the call, but not this rank's memory
  mine.inputs.clear();
}

void ThreadsWork::report() {
  if (!*observer_) {
    return;
  }
  const Call& mine = call_->slot(slot_).call;
  record_.group = group_;
  record_.op = mine.op;
  record_.label = mine.label;
  record_.bytes = bytes_to_receive(mine, group_->rank(), group_->size());
  (*observer_)(record_);
}

}  // namespace ndmesh::comm
