#include "ndmesh/plan/search/held.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"
#include "ndmesh/job/names.h"
#include "ndmesh/plan/search/held_pipeline.h"
#include "ndmesh/plan/time/rates.h"

namespace ndmesh::plan {
namespace {

using mesh::Axis;
using Policy = job::Recompute::Policy;

/// By Axis.
constexpr std::array<std::optional<std::int64_t> Held::*, mesh::axis_count> size_members = {
    &Held::tp, &Held::cp, &Held::dp_shard, &Held::dp_replicate, &Held::pp};

template <typename Value>
bool contains(const std::vector<Value>& list, Value value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// What is held against what the target runtime has.
class SupportCheck {
 public:
  SupportCheck(const Problem& problem, const Held& held, Problems& problems)
      : problem_(problem), support_(problem.profile.support), held_(held), problems_(problems) {}

  void run() {
    if (held_.schedule && held_.pp.value_or(2) > 1) {
      check("pipeline.schedule", *held_.schedule, support_.schedules, schedule::name_of(*held_.schedule),
            [](schedule::Kind kind) { return schedule::name_of(kind); });
    }
    if (held_.recompute) {
      check("recompute.policy", held_.recompute->policy, support_.recompute,
            job::name_of(held_.recompute->policy), [](Policy policy) { return job::name_of(policy); });
    }
    check("shard.offload", held_.offload, support_.offload, job::name_of(held_.offload),
          [](job::Offload offload) { return job::name_of(offload); });
    check("optimizer.name", problem_.optimizer, support_.optimizers, job::name_of(problem_.optimizer),
          [](job::OptimizerName name) { return job::name_of(name); });
    if (held_.cp.value_or(1) > 1) {
      check("context.kind", problem_.context, support_.contexts, job::name_of(problem_.context),
            [](job::ContextKind kind) { return job::name_of(kind); });
    }
    check_flags();
    check_offload_activations();
    check_host_link();
  }

 private:
  template <typename Value, typename Name>
  void check(std::string_view key, Value value, const std::vector<Value>& allowed, std::string_view shown,
             Name name) {
    if (contains(allowed, value)) {
      return;
    }
    std::vector<std::string> names;
    for (const Value& other : allowed) {
      names.emplace_back(name(other));
    }
    problems_.add(
        fmt::format("{}: {} is nothing that {} has; allowed: {}", key, shown, runtime(), join(names)));
  }

  void check_flags() {
    if (!support_.keeps_gathered && held_.zero == 3 && held_.reshard == false) {
      problems_.add(fmt::format(
          "shard.reshard: false, but {} always frees gathered parameters; allowed: true", runtime()));
    }
    if (!support_.fp8_products && problem_.precision.fp8_products) {
      problems_.add(fmt::format("precision.fp8_products: true, but {} has none; allowed: false", runtime()));
    }
    if (!support_.adapters && problem_.adapter.rank > 0) {
      problems_.add(fmt::format("adapter.rank: {}, but {} has no adapters; allowed: 0", problem_.adapter.rank,
                                runtime()));
    }
  }

  void check_offload_activations() {
    const std::vector<Policy>& policies = support_.offload_activations;
    if (!held_.offload_activations) {
      return;
    }
    if (policies.empty()) {
      problems_.add(fmt::format("recompute.offload: true is not planned for {}; allowed: false", runtime()));
    } else if (held_.recompute && !contains(policies, held_.recompute->policy)) {
      const std::string_view policy = job::name_of(held_.recompute->policy);
      problems_.add(
          fmt::format("recompute.offload: true with recompute.policy {} is nothing that {} has; allowed: "
                      "recompute.policy {}, or recompute.offload false",
                      policy, runtime(), job::name_of(policies.front())));
    }
  }

  /// What is offloaded crosses a link whose rate must be known.
  void check_host_link() {
    const cluster::Device& device = problem_.cluster.device;
    if (host_bandwidth(device) > 0) {
      return;
    }
    const auto refuse = [&](std::string_view key, std::string_view value, std::string_view allowed) {
      problems_.add(fmt::format(
          "{}: {}, but the bandwidth of device {} to its host is not known; allowed: {}, or state "
          "device.host_bandwidth in a cluster file",
          key, value, device.name, allowed));
    };
    if (held_.offload != job::Offload::none) {
      refuse("shard.offload", job::name_of(held_.offload), "none");
    }
    if (held_.offload_activations) {
      refuse("recompute.offload", "true", "false");
    }
  }

  std::string_view runtime() const { return support_.limits.name; }

  const Problem& problem_;
  const SupportProfile& support_;
  const Held& held_;
  Problems& problems_;
};

mesh::MeshSizes held_sizes(const Held& held) {
  mesh::MeshSizes sizes;
  for (const Axis axis : mesh::all_axes) {
    sizes.size(axis) = held.size(axis).value_or(1);
  }
  sizes.ep = held.ep.value_or(1);
  sizes.etp = held.etp.value_or(1);
  return sizes;
}

bool holds_all_axes(const Held& held) {
  return std::all_of(mesh::all_axes.begin(), mesh::all_axes.end(),
                     [&](Axis axis) { return held.size(axis).has_value(); });
}

/// What can be asked of the rules before the open axes are known: an open axis counts as 1, which breaks no
/// rule that another size would not break too, except those that are asked apart.
std::vector<mesh::RuleInput> questions(const Problem& problem, const Held& held) {
  mesh::RuleInput whole = rule_input(problem, held_sizes(held));
  whole.zero = held.zero;
  whole.micro_batch = held.micro.value_or(1);
  if (holds_all_axes(held)) {
    whole.world = problem.cluster.devices();
    return {whole};
  }
  if (!held.dp_shard) {
    whole.runtime.replicates_unsharded = true;
  }
  mesh::RuleInput dense = whole;
  dense.mesh.ep = dense.mesh.etp = 1;
  mesh::RuleInput stages = dense;
  stages.micro_batch = 0;  // how many micro-batches there are is open
  stages.chunks = held.chunks.value_or(1);
  // Experts: on just as many ranks as they take.
  mesh::RuleInput experts = whole;
  experts.global_batch = 0;
  experts.zero.reset();
  experts.mesh = {.dp_shard = whole.mesh.ep * whole.mesh.etp, .ep = whole.mesh.ep, .etp = whole.mesh.etp};
  return {dense, stages, experts};
}

/// The product of the axes that are held must leave room for the others.
void check_world(const Problem& problem, const Held& held, Problems& problems) {
  const mesh::MeshSizes sizes = held_sizes(held);
  const std::int64_t devices = problem.cluster.devices();
  if (holds_all_axes(held) || sizes.world() > mesh::max_world || devices % sizes.world() == 0) {
    return;
  }
  const std::int64_t lower = devices / sizes.world() * sizes.world();
  problems.add(fmt::format(
      "mesh: {} takes {} ranks at a time, which do not divide the cluster's {} devices; nearest "
      "clusters: {}",
      sizes.name(), sizes.world(), devices,
      lower > 0 ? fmt::format("{} or {}", lower, lower + sizes.world()) : fmt::format("{}", sizes.world())));
}

/// The schedule's own rules, where all that they need is held.
void check_schedule(const Problem& problem, const Held& held, Problems& problems) {
  const std::int64_t pp = held.pp.value_or(1);
  if (pp == 1 || !held.schedule) {
    return;
  }
  mesh::RuleInput input = rule_input(problem, held_sizes(held));
  const bool batch_known = held.dp_shard && held.dp_replicate;
  input.micro_batch = batch_known ? held.micro.value_or(0) : 0;  // 0: open
  problems.add_all(
      schedule::problems_of({.kind = *held.schedule,
                             .ranks = pp,
                             .chunks = held.chunks.value_or(schedule::least_chunks(*held.schedule)),
                             .micro_batches = mesh::micro_batches(input).value_or(pp)}));
}

}  // namespace

const std::optional<std::int64_t>& Held::size(Axis axis) const {
  return this->*size_members[static_cast<std::size_t>(axis)];
}

std::optional<std::int64_t>& Held::size(Axis axis) {
  return this->*size_members[static_cast<std::size_t>(axis)];
}

void Held::open_mesh() {
  for (const Axis axis : mesh::all_axes) {
    size(axis).reset();
  }
  ep.reset();
  etp.reset();
}

mesh::RuleInput rule_input(const Problem& problem, const mesh::MeshSizes& mesh) {
  mesh::RuleInput input = mesh::rule_input(problem.model, mesh);
  input.global_batch = problem.global_batch;
  input.seq_len = problem.seq_len;
  input.context = problem.context == job::ContextKind::alltoall ? mesh::ContextSplit::heads
                                                                : mesh::ContextSplit::sequence;
  input.interleaving = schedule::Interleaving::flexible;
  input.runtime = problem.profile.support.limits;
  return input;
}

std::vector<std::string> broken_by(const Problem& problem, const Held& held) {
  Problems problems;
  for (const mesh::RuleInput& input : questions(problem, held)) {
    for (const std::string& message : mesh::broken_rules(input)) {
      if (!contains(problems.list(), message)) {
        problems.add(message);
      }
    }
  }
  check_world(problem, held, problems);
  check_schedule(problem, held, problems);
  problems.add_all(pipeline_problems(problem, held));
  SupportCheck(problem, held, problems).run();
  return problems.list();
}

std::vector<std::string> nothing_legal(const Problem& problem, const Held& held) {
  mesh::MeshSizes sizes = held_sizes(held);
  const std::int64_t rest = std::max<std::int64_t>(1, problem.cluster.devices() / sizes.world());
  for (const Axis axis : {Axis::dp_shard, Axis::dp_replicate, Axis::cp, Axis::pp, Axis::tp}) {
    if (!held.size(axis)) {
      sizes.size(axis) = rest;
      break;
    }
  }
  mesh::RuleInput input = rule_input(problem, sizes);
  input.micro_batch = held.micro.value_or(1);
  input.zero = held.zero;
  input.chunks = held.chunks.value_or(1);
  Problems problems;
  problems.add(fmt::format("no mesh of {} ranks is legal with what is given; of mesh {}:",
                           problem.cluster.devices(), sizes.name()));
  problems.add_all(mesh::broken_rules(input));
  if (problem.layers.policy == job::StageLayers::Policy::given) {
    problems.add(
        fmt::format("pipeline.layers lists {} stages: mesh.pp_size x pipeline.chunks must be that many",
                    problem.layers.layers.size()));
  }
  if (problem.list.schedule) {
    problems.add(fmt::format(
        "pipeline.schedule {} is for {} ranks and {} micro-batches: batch.global {} must be batch.micro x {} "
        "x batch ranks",
        problem.list.file, problem.list.schedule->shape.ranks, problem.list.schedule->shape.micro_batches,
        problem.global_batch, problem.list.schedule->shape.micro_batches));
  }
  return problems.list();
}

}  // namespace ndmesh::plan
