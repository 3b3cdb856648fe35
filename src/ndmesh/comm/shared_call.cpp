#include "ndmesh/comm/shared_call.h"

#include <fmt/format.h>

#include "ndmesh/comm/transfer.h"

namespace ndmesh::comm {
namespace {

const Slot* first_posted(const SharedCall& call) {
  for (const Slot& slot : call.slots) {
    if (slot.posted) {
      return &slot;
    }
  }
  return nullptr;
}

std::string posted_ranks(const SharedCall& call) {
  std::vector<std::int64_t> ranks;
  for (int i = 0; i < call.size(); ++i) {
    if (call.slot(i).posted) {
      ranks.push_back(call.ranks[static_cast<std::size_t>(i)]);
    }
  }
  return ranks_text(ranks);
}

std::string difference_text(const std::string& ranks, const CallNote& theirs, std::int64_t rank,
                            const CallNote& mine) {
  return fmt::format("mismatched: the calls of a group differ\n  {}: {}\n  rank {}: {}", ranks, theirs.text(),
                     rank, mine.text());
}

/// The first two members of a complete all-to-all that disagree about what goes between them.
std::optional<std::string> uneven_pair(const SharedCall& call, int last, const CallNote& last_note) {
  const auto note = [&](int i) -> const CallNote& { return i == last ? last_note : *call.slot(i).note; };
  for (int from = 0; from < call.size(); ++from) {
    for (int to = 0; to < call.size(); ++to) {
      const std::size_t f = static_cast<std::size_t>(from), t = static_cast<std::size_t>(to);
      if (!same_message(note(from).inputs[t], note(to).outputs[f])) {
        return fmt::format(
            "{}\n  inputs[{}] of rank {} is not what rank {} expects as outputs[{}]",
            difference_text(fmt::format("rank {}", call.ranks[f]), note(from), call.ranks[t], note(to)), to,
            call.ranks[f], call.ranks[t], from);
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::shared_ptr<SharedCall> CallQueue::at(std::int64_t sequence, const std::vector<std::int64_t>& ranks) {
  const std::size_t index = static_cast<std::size_t>(sequence - first_);
  while (open_.size() <= index) {
    open_.push_back(std::make_shared<SharedCall>(ranks));
  }
  return open_[index];
}

void CallQueue::drop_complete() {
  while (!open_.empty() && open_.front()->arrived == open_.front()->size()) {
    open_.pop_front();
    ++first_;
  }
}

std::optional<std::string> contradiction(const SharedCall& call, int slot, const CallNote& mine) {
  const Slot* first = first_posted(call);
  const std::int64_t rank = call.ranks[static_cast<std::size_t>(slot)];
  if (mine.op == Op::send || mine.op == Op::recv) {
    if (first == nullptr) {
      return std::nullopt;
    }
    const bool same = mine.op == Op::send ? same_message(mine.inputs[0], first->note->outputs[0])
                                          : same_message(first->note->inputs[0], mine.outputs[0]);
    return same ? std::nullopt : std::optional(difference_text(posted_ranks(call), *first->note, rank, mine));
  }
  if (first != nullptr && !same_collective(*first->note, mine)) {
    return difference_text(posted_ranks(call), *first->note, rank, mine);
  }
  const bool last = call.arrived == call.size() - 1;
  return last && mine.op == Op::all_to_all ? uneven_pair(call, slot, mine) : std::nullopt;
}

CallBlocker::CallBlocker(const SharedCall& call, int slot, Until until)
    : call_(call), slot_(slot), until_(until) {
  if (until == Until::reduced) {
    chunks_ = chunk_count(*call.slot(slot).note);
  }
}

bool CallBlocker::arrived() const {
  switch (call_.slot(slot_).note->op) {
    case Op::send:
      return true;
    case Op::recv:
      return call_.slot(0).posted;
    case Op::broadcast:
      return call_.slot(call_.slot(slot_).note->root).posted;
    default:
      return call_.arrived == call_.size();
  }
}

bool CallBlocker::read() const {
  const CallNote& note = *call_.slot(slot_).note;
  switch (note.op) {
    case Op::recv:
    case Op::barrier:
    case Op::all_reduce:  // nobody reads a tensor after the last chunk is written
      return true;
    case Op::broadcast:
      return slot_ != note.root || call_.finished == call_.size();
    default:
      return call_.finished == call_.size();
  }
}

bool CallBlocker::ready() const {
  switch (until_) {
    case Until::arrived:
      return arrived();
    case Until::reduced:
      return call_.done_chunks == chunks_;
    case Until::read:
      return read();
  }
  return true;
}

std::vector<std::int64_t> CallBlocker::missing() const {
  std::vector<std::int64_t> ranks;
  if (until_ == Until::reduced || ready()) {
    return ranks;  // chunks are written by ranks that run
  }
  const CallNote& note = *call_.slot(slot_).note;
  for (int i = 0; i < call_.size(); ++i) {
    const bool needed = until_ == Until::read || note.op != Op::broadcast || i == note.root;
    const Slot& peer = call_.slot(i);
    if (needed && !(until_ == Until::read ? peer.finished : peer.posted)) {
      ranks.push_back(call_.ranks[static_cast<std::size_t>(i)]);
    }
  }
  return ranks;
}

}  // namespace ndmesh::comm
