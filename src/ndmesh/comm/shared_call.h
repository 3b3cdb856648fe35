#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ndmesh/comm/call.h"
#include "ndmesh/comm/threads_world.h"

namespace ndmesh::comm {

/// What one member put into a call. Written by its thread before `posted`; peers read the note and the
/// pointers, never the tensors, which only keep the memory alive until their owner lets go.
struct Slot {
  std::atomic<bool> posted{false};
  std::atomic<bool> finished{false};  ///< its wait() is over: it reads no peer's memory any more
  std::shared_ptr<const CallNote> note;
  Call call;
  std::vector<void*> outputs;
  std::vector<const void*> inputs;
};

/// One collective, or one message (slot 0 sends, slot 1 receives), as all its members share it.
struct SharedCall {
  explicit SharedCall(std::vector<std::int64_t> world_ranks)
      : ranks(std::move(world_ranks)), slots(ranks.size()) {}

  int size() const { return static_cast<int>(ranks.size()); }
  Slot& slot(int index) { return slots[static_cast<std::size_t>(index)]; }
  const Slot& slot(int index) const { return slots[static_cast<std::size_t>(index)]; }

  const std::vector<std::int64_t> ranks;  ///< world ranks, by slot
  std::vector<Slot> slots;
  std::atomic<int> arrived{0};
  std::atomic<int> finished{0};
  std::atomic<int> movers{0};               ///< members that touch peers' memory right now
  std::atomic<std::int64_t> next_chunk{0};  ///< of an all-reduce
  std::atomic<std::int64_t> done_chunks{0};
};

/// The open calls of one sequence: those that some member has not posted yet.
class CallQueue {
 public:
  /// The call numbered `sequence` (from 1); made when its first member comes.
  std::shared_ptr<SharedCall> at(std::int64_t sequence, const std::vector<std::int64_t>& ranks);
  /// Forgets the calls that every member has posted; each keeps its own reference.
  void drop_complete();

 private:
  std::deque<std::shared_ptr<SharedCall>> open_;
  std::int64_t first_ = 1;
};

/// What the members of a group share.
struct GroupState {
  std::mutex mutex;
  CallQueue collectives;
  std::map<std::pair<int, int>, CallQueue> messages;  ///< by sender and receiver
};

/// How the call `mine` of member `slot` contradicts what peers have posted so far; nothing when it does not.
std::optional<std::string> contradiction(const SharedCall& call, int slot, const CallNote& mine);

/// Moments in the life of a call that a member may have to wait for.
enum class Until {
  arrived,  ///< the peers whose memory it reads have posted
  reduced,  ///< every chunk of an all-reduce is written
  read,     ///< every peer has read what it sent
};

/// Member `slot` of `call` waiting for such a moment.
class CallBlocker final : public Blocker {
 public:
  CallBlocker(const SharedCall& call, int slot, Until until);

  bool ready() const override;
  std::vector<std::int64_t> missing() const override;
  std::string text() const override { return call_.slot(slot_).note->text(); }

 private:
  bool arrived() const;
  bool read() const;

  const SharedCall& call_;
  int slot_;
  Until until_;
  std::int64_t chunks_ = 0;
};

}  // namespace ndmesh::comm
