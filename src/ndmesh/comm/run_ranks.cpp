#include <c10/core/AutogradState.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <system_error>
#include <thread>

#include "ndmesh/comm/threads_group.h"
#include "ndmesh/comm/threads_world.h"
#include "ndmesh/comm/world.h"

namespace ndmesh::comm {
namespace {

class ThreadsCommunicator final : public Communicator {
 public:
  ThreadsCommunicator(std::shared_ptr<World> world, std::int64_t rank)
      : world_(std::move(world)), rank_(rank) {}

  std::int64_t rank() const override { return rank_; }
  const mesh::Mesh& mesh() const override { return world_->mesh(); }

  Group& group(mesh::AxisSet axes) override { return made(name_among(axes), mesh().group(rank_, axes)); }

  Group& subgroup(mesh::AxisSet axes, const std::vector<std::int64_t>& members) override {
    return made(name_among(axes), members);
  }

  Group& everyone() override {
    std::vector<std::int64_t> members(static_cast<std::size_t>(world()));
    std::iota(members.begin(), members.end(), 0);
    return made("everyone", std::move(members));
  }

  void enter_phase(Phase phase, std::string what) override {
    world_->enter_phase(rank_, phase, std::move(what));
  }

  void observe(std::function<void(const CollectiveRecord&)> observer) override {
    observer_ = std::move(observer);
  }

 private:
  /// Axes of size 1 add no rank, so sets that differ only in those are one group, and messages leave them
  /// out.
  std::string name_among(mesh::AxisSet axes) const {
    mesh::AxisSet used;
    for (std::size_t i = 0; i < mesh::axis_count; ++i) {
      const auto axis = static_cast<mesh::Axis>(i);
      if (axes.contains(axis) && mesh().size(axis) > 1) {
        used = used.with(axis);
      }
    }
    return used.empty() ? axes.name() : used.name();
  }

  Group& made(const std::string& name, std::vector<std::int64_t> members) {
    std::unique_ptr<ThreadsGroup>& group = groups_[{name, members}];
    if (!group) {
      group = std::make_unique<ThreadsGroup>(world_, name, std::move(members), rank_, &observer_);
    }
    return *group;
  }

  std::shared_ptr<World> world_;
  std::int64_t rank_;
  Observer observer_;
  std::map<std::pair<std::string, std::vector<std::int64_t>>, std::unique_ptr<ThreadsGroup>> groups_;
};

/// Backward then runs on the rank's own thread: the engine's worker thread of a device is one for the whole
/// process, and two ranks that wait for each other in it would never end.
void keep_autograd_on_this_thread() {
  c10::AutogradState state = c10::AutogradState::get_tls_state();
  state.set_multithreading_enabled(false);
  c10::AutogradState::set_tls_state(state);
}

void run_rank(const std::shared_ptr<World>& world, std::int64_t rank,
              const std::function<void(Communicator&)>& body) {
  keep_autograd_on_this_thread();
  std::exception_ptr error;
  try {
    ThreadsCommunicator communicator(world, rank);
    body(communicator);
  } catch (...) {
    error = std::current_exception();
  }
  world->finish(rank, error);
}

}  // namespace

void run_ranks(const mesh::Mesh& mesh, const Limits& limits, const std::function<void(Communicator&)>& body) {
  const auto world = std::make_shared<World>(mesh, limits);
  // A copy that outlives this call, for ranks that are left behind.
  const auto shared_body = std::make_shared<const std::function<void(Communicator&)>>(body);
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < mesh.world(); ++rank) {
    try {
      threads.emplace_back([world, rank, shared_body] { run_rank(world, rank, *shared_body); });
    } catch (const std::system_error& error) {
      world->condemn(fmt::format("dead: the thread of rank {} of {} could not be started: {}", rank,
                                 mesh.world(), error.what()));
      for (std::int64_t missing = rank; missing < mesh.world(); ++missing) {
        world->finish(missing, nullptr);
      }
      break;
    }
  }
  const std::vector<std::int64_t> left_behind = world->wait_for_end();
  for (std::size_t rank = 0; rank < threads.size(); ++rank) {
    const bool runs = std::find(left_behind.begin(), left_behind.end(), static_cast<std::int64_t>(rank)) !=
                      left_behind.end();
    runs ? threads[rank].detach() : threads[rank].join();
  }
  world->rethrow(left_behind);
}

}  // namespace ndmesh::comm
