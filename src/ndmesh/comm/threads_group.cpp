#include "ndmesh/comm/threads_group.h"

#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/race_visibility.h"
#include "ndmesh/comm/threads_work.h"

namespace ndmesh::comm {
namespace {

void check_devices(const Call& call, const std::string& group) {
  for (const Tensors* tensors : {&call.outputs, &call.inputs}) {
    for (const at::Tensor& tensor : *tensors) {
      if (!tensor.device().is_cpu()) {
        throw RunError(fmt::format(
            "{} \"{}\" of group {}: a tensor is on device {}; run.transport threads takes cpu only",
            name_of(call.op), call.label, group, tensor.device().str()));
      }
    }
  }
}

}  // namespace

ThreadsGroup::ThreadsGroup(std::shared_ptr<World> world, std::string name, std::vector<std::int64_t> members,
                           std::int64_t rank, const Observer* observer)
    : Group(std::move(name), members,
            static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin())),
      world_(std::move(world)),
      state_(world_->group_state(this->name(), this->members())),
      world_rank_(rank),
      observer_(observer) {}

std::unique_ptr<Work::State> ThreadsGroup::start(Call call) {
  const Clock::time_point started = Clock::now();
  world_->check_running();
  check_devices(call, name());
  const Place place = place_of(call);
  auto note = std::make_shared<const CallNote>(call, name(), place.sequence, peer_name(call));
  world_->note_call(world_rank_, note);
  std::shared_ptr<SharedCall> shared = post(place, std::move(note), std::move(call));
  return std::make_unique<ThreadsWork>(world_, std::move(shared), place.slot, this, observer_, started);
}

std::string ThreadsGroup::peer_name(const Call& call) const {
  const bool message = call.op == Op::send || call.op == Op::recv;
  return message ? fmt::format("rank {}", members()[static_cast<std::size_t>(call.peer)]) : "";
}

ThreadsGroup::Place ThreadsGroup::place_of(const Call& call) {
  if (call.op != Op::send && call.op != Op::recv) {
    return {&state_->collectives, members(), rank(), ++collectives_};
  }
  const bool sends = call.op == Op::send;
  const int from = sends ? rank() : call.peer;
  const int to = sends ? call.peer : rank();
  const std::lock_guard lock(state_->mutex);
  return {&state_->messages[{from, to}],
          {members()[static_cast<std::size_t>(from)], members()[static_cast<std::size_t>(to)]},
          sends ? 0 : 1,
          sends ? ++sent_[to] : ++received_[from]};
}

std::shared_ptr<SharedCall> ThreadsGroup::post(const Place& place, std::shared_ptr<const CallNote> note,
                                               Call call) {
  std::shared_ptr<SharedCall> shared;
  std::optional<std::string> mismatch;
  bool may_unblock = false;
  {
    const std::lock_guard lock(state_->mutex);
    shared = place.queue->at(place.sequence, place.ranks);
    mismatch = contradiction(*shared, place.slot, *note);
    if (!mismatch) {
      Slot& slot = shared->slot(place.slot);
      note_written(call.outputs);
      for (const at::Tensor& tensor : call.outputs) {
        slot.outputs.push_back(tensor.mutable_data_ptr());
      }
      for (const at::Tensor& tensor : call.inputs) {
        slot.inputs.push_back(tensor.const_data_ptr());
      }
      slot.call = std::move(call);
      slot.note = std::move(note);
      slot.posted = true;
      may_unblock = ++shared->arrived == shared->size() || slot.note->root == rank();
      place.queue->drop_complete();
    }
  }
  if (mismatch) {
    world_->condemn(std::move(*mismatch));
    world_->check_running();
  }
  if (may_unblock) {
    world_->wake(shared->ranks);
  }
  return shared;
}

}  // namespace ndmesh::comm
