#pragma once

#include <memory>

#include "ndmesh/comm/threads_group.h"

namespace ndmesh::comm {

/// One rank's part of a posted call.
class ThreadsWork final : public Work::State {
 public:
  ThreadsWork(std::shared_ptr<World> world, std::shared_ptr<SharedCall> call, int slot, const Group* group,
              const Observer* observer, Clock::time_point started);
  /// Gives the call up when it was not released: ends the run if a peer still needs this rank's part, and
  /// returns when no peer touches this rank's memory.
  ~ThreadsWork() override;

  bool settled() const override;
  void wait() override;
  void release() override;

 private:
  void transfer();
  void report();

  std::shared_ptr<World> world_;
  std::shared_ptr<SharedCall> call_;
  int slot_;
  const Group* group_;
  const Observer* observer_;
  std::int64_t rank_;  // in the world
  bool waited_ = false;
  bool released_ = false;
  CollectiveRecord record_;
};

}  // namespace ndmesh::comm
