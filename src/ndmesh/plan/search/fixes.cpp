#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/job/names.h"
#include "ndmesh/plan/search/answer.h"

namespace ndmesh::plan {
namespace {

using job::Offload;

constexpr std::int64_t adapter_rank = 16;
constexpr int most_doublings = 12;
constexpr std::int64_t most_steps = 24;  ///< clusters that are tried one by one

/// One lever: what it changes, in the key names of a job.
struct Lever {
  std::string change;
  Problem problem;
  Held held;
};

class Fixing {
 public:
  explicit Fixing(const TrainingAnswer& answer) : answer_(answer) {}

  std::vector<Fix> run() {
    if (!answer_.fits()) {
      for (const Lever& lever : levers()) {
        pull(lever);
      }
      if (fixes_.empty()) {
        pull_together();
      }
    }
    std::stable_sort(fixes_.begin(), fixes_.end(),
                     [](const Fix& a, const Fix& b) { return is_better(a.plan, b.plan); });
    find_devices();
    return std::move(fixes_);
  }

 private:
  const Problem& problem() const { return answer_.question.problem; }
  const Held& held() const { return answer_.question.held; }

  bool is_wanted(const Problem& problem, const Plan& plan) const {
    const double wanted = answer_.question.tokens_per_second;
    return plan.fits && (!answer_.fits() || tokens_per_second(problem, plan) >= wanted);
  }

  std::optional<Plan> best_with(const Lever& lever) const {
    TrainingQuestion question = answer_.question;
    question.problem = lever.problem;
    question.held = lever.held;
    return best_plan(question);
  }

  void pull(const Lever& lever) {
    std::optional<Plan> plan = best_with(lever);
    if (plan && is_wanted(lever.problem, *plan)) {
      fixes_.push_back({lever.change, lever.problem.cluster.devices(), std::move(*plan)});
    }
  }

  /// Whether moving something to the host makes room: a core's memory is the host's.
  bool has_host() const { return !problem().cluster.device.is_host(); }

  bool has(Offload offload) const {
    const auto& list = problem().profile.support.offload;
    return has_host() && held().offload != offload &&
           std::find(list.begin(), list.end(), offload) != list.end();
  }

  bool has_offload_of_activations() const {
    return has_host() && !held().offload_activations &&
           !problem().profile.support.offload_activations.empty();
  }

  bool holds_axes() const {
    return held().ep || held().etp ||
           std::any_of(mesh::all_axes.begin(), mesh::all_axes.end(),
                       [&](mesh::Axis axis) { return held().size(axis).has_value(); });
  }

  std::vector<Lever> levers() const {
    std::vector<Lever> all;
    const auto add = [&](std::string change, auto set) {
      all.push_back({std::move(change), problem(), held()});
      set(all.back().problem, all.back().held);
    };
    if (held().recompute) {
      add("recompute.policy left open", [](Problem&, Held& h) { h.recompute.reset(); });
    }
    if (held().micro || held().zero || held().schedule || problem().list.schedule) {
      add("batch.micro, shard.zero and pipeline.schedule left open",
          [](Problem& p, Held& h) { open_rest(p, h); });
    }
    if (holds_axes()) {
      add("mesh sizes left open", [](Problem&, Held& h) { h.open_mesh(); });
    }
    if (held().offload != Offload::none) {
      add("shard.offload=none", [](Problem&, Held& h) { h.offload = Offload::none; });
    }
    if (held().offload_activations) {
      add("recompute.offload=false", [](Problem&, Held& h) { h.offload_activations = false; });
    }
    if (has_offload_of_activations()) {
      add("recompute.offload=true", [](Problem&, Held& h) { h.offload_activations = true; });
    }
    for (const Offload offload : {Offload::optimizer, Offload::all}) {
      if (has(offload)) {
        add(offload == Offload::optimizer ? "shard.offload=optimizer" : "shard.offload=all",
            [&](Problem&, Held& h) { h.offload = offload; });
      }
    }
    if (!problem().precision.bf16_states && problem().precision.compute == DType::bfloat16) {
      add("precision.bf16_states=true", [](Problem& p, Held&) { p.precision.bf16_states = true; });
    }
    if (problem().adapter.rank == 0 && problem().profile.support.adapters) {
      add(fmt::format("adapter.rank={}", adapter_rank),
          [](Problem& p, Held&) { p.adapter.rank = adapter_rank; });
    }
    return all;
  }

  static void open_rest(Problem& problem, Held& held) {
    problem.list = {};
    held.micro.reset();
    held.zero.reset();
    held.schedule.reset();
    held.chunks.reset();
  }

  /// Where no lever is enough alone.
  void pull_together() {
    Lever all{"everything left open, precision.bf16_states=true", problem(), held()};
    all.held.open_mesh();
    open_rest(all.problem, all.held);
    if (problem().layers.policy == job::StageLayers::Policy::given) all.problem.layers = {};
    all.held.recompute.reset();
    for (const Offload offload : {Offload::all, Offload::optimizer}) {
      if (has(offload)) {
        all.held.offload = offload;
        all.change += fmt::format(", shard.offload={}", job::name_of(offload));
        break;
      }
    }
    all.problem.precision.bf16_states = true;
    pull(all);
    if (fixes_.empty() && has_offload_of_activations()) {
      all.held.offload_activations = true;
      all.change += ", recompute.offload=true";
      pull(all);
    }
  }

  /// Whether so many nodes do; what does is kept in `fix`.
  bool is_enough(std::int64_t nodes, std::optional<Fix>& fix) const {
    const std::int64_t devices = nodes * problem().cluster.devices_per_node;
    Lever lever{fmt::format("{} devices", devices), problem(), held()};
    try {
      lever.problem.cluster = cluster::resized(problem().cluster, devices);
    } catch (const RequestError&) {  // larger than a cluster may be
      return false;
    }
    lever.held.open_mesh();
    std::optional<Plan> plan = best_with(lever);
    if (!plan || !is_wanted(lever.problem, *plan)) {
      return false;
    }
    fix = Fix{lever.change, devices, std::move(*plan)};
    return true;
  }

  /// The fewest nodes that do: by doubling, then by halving until the rest is tried one by one.
  void find_devices() {
    std::optional<Fix> fix;
    std::int64_t low = problem().cluster.nodes;
    std::int64_t high = low;
    for (int doubling = 0; doubling < most_doublings && !fix; ++doubling) {
      low = high;
      high *= 2;
      is_enough(high, fix);
    }
    if (!fix) {
      return;
    }
    while (high - low > most_steps) {
      const std::int64_t middle = (low + high) / 2;
      (is_enough(middle, fix) ? high : low) = middle;
    }
    for (std::int64_t nodes = low + 1; nodes < high && !is_enough(nodes, fix); ++nodes) {
    }
    fixes_.push_back(std::move(*fix));
  }

  const TrainingAnswer& answer_;
  std::vector<Fix> fixes_;
};

}  // namespace

std::vector<Fix> fixes_of(const TrainingAnswer& answer) {
  return Fixing(answer).run();
}

}  // namespace ndmesh::plan
