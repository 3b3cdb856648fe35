#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ndmesh/comm/shared_call.h"
#include "ndmesh/comm/threads_world.h"

namespace ndmesh::comm {

using Observer = std::function<void(const CollectiveRecord&)>;

/// A group of rank threads. A call is posted with this rank's tensors and moves nothing; wait() reads the
/// peers' memory.
class ThreadsGroup final : public Group {
 public:
  /// `observer` is the rank's, and outlives the group.
  ThreadsGroup(std::shared_ptr<World> world, std::string name, std::vector<std::int64_t> members,
               std::int64_t rank, const Observer* observer);

 private:
  /// Where a call belongs: its queue, its members and which of them this rank is.
  struct Place {
    CallQueue* queue = nullptr;
    std::vector<std::int64_t> ranks;
    int slot = 0;
    std::int64_t sequence = 0;
  };

  std::unique_ptr<Work::State> start(Call call) override;
  Place place_of(const Call& call);
  std::string peer_name(const Call& call) const;
  std::shared_ptr<SharedCall> post(const Place& place, std::shared_ptr<const CallNote> note, Call call);

  std::shared_ptr<World> world_;
  std::shared_ptr<GroupState> state_;
  std::int64_t world_rank_;
  const Observer* observer_;
  std::int64_t collectives_ = 0;
  std::map<int, std::int64_t> sent_;      // messages, by destination
  std::map<int, std::int64_t> received_;  // by source
};

}  // namespace ndmesh::comm
