#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "ndmesh/base/text.h"
#include "ndmesh/base/units.h"
#include "ndmesh/plan/search/answer.h"

namespace ndmesh::plan {
namespace {

constexpr std::size_t most_losers = 6;
constexpr int most_sizes = 3;  ///< of an axis that no plan of the table uses

/// What a strategy says of itself.
struct AxisFacts {
  std::string_view axis;
  std::string_view splits;
  std::string_view keeps_whole;
  std::string_view critical;
  std::string_view fails;
};

constexpr std::array<AxisFacts, 6> facts = {{
    {"tp",
     "output and input dims of matrices, heads, vocabulary; with sequence parallelism the norms' sequence",
     "norm weights; KV heads beyond their number",
     "all-gather and reduce-scatter of activations, twice a block in each direction",
     "it leaves the fastest links, or products become too thin"},
    {"dp_shard", "batch; parameters, gradients and optimizer state as shard.zero says",
     "activations; below zero 3 the parameters",
     "all-gather of each block's parameters (zero 3) or of all after a step (zero 1 and 2), reduce-scatter "
     "of "
     "gradients",
     "blocks are small or links slow, so that gathering outlasts computing; or the batch has no sequence "
     "left"},
    {"dp_replicate", "batch", "parameters, gradients and optimizer state",
     "all-reduce of gradients, once a step", "a copy does not fit, or the batch has no sequence left"},
    {"pp", "layers", "nothing inside a stage; in-flight micro-batches multiply activations",
     "sends of activations between neighbours",
     "there are too few micro-batches (the bubble), or layers do not divide"},
    {"cp", "sequence", "parameters, unless zero 3 shards them over cp too",
     "ring or gather of keys and values in every attention",
     "sequences are short, so that attention cannot hide it"},
    {"ep", "experts", "everything but the experts",
     "all-to-all of tokens, twice a MoE layer in each direction",
     "it leaves the node, or few experts get most tokens"},
}};

/// The size of an axis by its name, ep among them.
std::int64_t size_of(const mesh::MeshSizes& sizes, std::string_view axis) {
  return axis == "ep" ? sizes.ep : sizes.size(*mesh::axis_from_name(axis));
}

std::optional<std::int64_t>& held_size(Held& held, std::string_view axis) {
  return axis == "ep" ? held.ep : held.size(*mesh::axis_from_name(axis));
}

const std::optional<std::int64_t>& held_size(const Held& held, std::string_view axis) {
  return axis == "ep" ? held.ep : held.size(*mesh::axis_from_name(axis));
}

std::string fact_lines(const Plan& plan, std::string_view axis) {
  const auto fact =
      std::find_if(facts.begin(), facts.end(), [&](const AxisFacts& f) { return f.axis == axis; });
  const auto reason = std::find_if(plan.reasons.begin(), plan.reasons.end(), [&](const std::string& text) {
    return text.starts_with(fmt::format("{} ", axis));
  });
  const auto level = std::find_if(plan.levels.begin(), plan.levels.end(),
                                  [&](const AxisLevel& l) { return l.axis == axis; });
  std::string text =
      fmt::format("{} (on {}) splits {}. Stays whole: {}. On the critical path: {}, {} of a step of {}.",
                  axis, level == plan.levels.end() ? "?" : level->level, fact->splits, fact->keeps_whole,
                  fact->critical, duration(exposed_over(plan, axis)), duration(plan.time.seconds));
  if (reason != plan.reasons.end()) {
    text += fmt::format(" Here: {}.", *reason);
  }
  return text + fmt::format(" Fails when {}.", fact->fails);
}

class Explanation {
 public:
  explicit Explanation(const TrainingAnswer& answer)
      : answer_(answer), best_(answer.result.plans.front()), problem_(answer.question.problem) {}

  std::vector<std::string> run() const {
    return {domains(),
            axis_step("2. Tensor parallelism, on the fastest links", {"tp"}),
            axis_step("3. Data parallelism, from what is left", {"dp_shard", "dp_replicate"}),
            axis_step("4. Pipeline, for depth or slow links", {"pp"}),
            axis_step("5. Context for the sequence, experts for MoE", {"cp", "ep"}),
            divisibility(),
            candidates()};
  }

 private:
  std::string domains() const {
    const cluster::Cluster& cluster = problem_.cluster;
    std::string text =
        fmt::format("1. Domains. {}: {} devices of {}, {} usable each, of which {} after headroom.",
                    cluster.name, cluster.devices(), cluster.device.name, binary_bytes(cluster.usable_bytes),
                    binary_bytes(answer_.allowed_bytes));
    for (const cluster::Level& level : cluster.levels) {
      text += fmt::format(" {}: {} devices at {}/s a device, {:.1f} us a hop.", level.name, level.devices,
                          decimal_bytes(static_cast<std::int64_t>(level.bandwidth)), 1e6 * level.latency);
    }
    return text;
  }

  std::string axis_step(std::string_view title, const std::vector<std::string_view>& axes) const {
    std::string text = fmt::format("{}.", title);
    for (const std::string_view axis : axes) {
      const bool used = size_of(best_.candidate.mesh, axis) > 1;
      text += " " + (used ? fact_lines(best_, axis) : unused(axis));
    }
    return text;
  }

  /// Why the best plan does without an axis: by the best mesh that uses it.
  std::string unused(std::string_view axis) const {
    if (axis == "ep" && !problem_.model.experts) {
      return "ep is not used: the model is dense.";
    }
    if (problem_.cluster.devices() == 1) {
      return fmt::format("{} is not used: there is one device.", axis);
    }
    if (held_size(answer_.question.held, axis)) {
      return fmt::format("{} is not used: it is given as 1.", axis);
    }
    for (const Plan& plan : answer_.result.plans) {
      if (size_of(plan.candidate.mesh, axis) > 1) {
        return fmt::format("{} is not used: the best plan with it is {}: {}.", axis, describe(plan),
                           loses(plan));
      }
    }
    const std::optional<Plan> plan = best_with(axis);
    return plan ? fmt::format("{} is not used: the best plan with its smallest sizes is {}: {}.", axis,
                              describe(*plan), loses(*plan))
                : fmt::format("{} is not used: no mesh with it is legal.", axis);
  }

  /// The best plan with the smallest legal sizes of an axis that no plan of the table has.
  std::optional<Plan> best_with(std::string_view axis) const {
    Problem problem = problem_;
    problem.global_batch = best_.global_batch;
    Held held = answer_.question.held;
    std::optional<Plan> best;
    int legal = 0;
    for (std::int64_t size = 2; size <= problem.cluster.devices() && legal < most_sizes; ++size) {
      if (problem.cluster.devices() % size != 0) {
        continue;
      }
      held_size(held, axis) = size;
      if (std::optional<Plan> plan = best_plan(problem, held)) {
        ++legal;
        if (!best || is_better(*plan, *best)) {
          best = std::move(plan);
        }
      }
    }
    return best;
  }

  std::string loses(const Plan& plan) const {
    if (!plan.fits) {
      return shortage(answer_, plan);
    }
    if (plan.time.seconds <= best_.time.seconds) {
      return fmt::format("as fast, {} a step", duration(plan.time.seconds));
    }
    const StepTime& mine = plan.time;
    const StepTime& best = best_.time;
    const std::array<std::pair<std::string_view, double>, 4> parts = {
        {{"compute", mine.compute - best.compute},
         {"exposed", mine.exposed - best.exposed},
         {"bubble", mine.bubble - best.bubble},
         {"optimizer", mine.optimizer - best.optimizer}}};
    const auto worst = std::max_element(parts.begin(), parts.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
    return fmt::format("{} a step against {}, {} of it more {}", duration(mine.seconds),
                       duration(best.seconds), duration(std::max(0.0, worst->second)), worst->first);
  }

  std::string divisibility() const {
    mesh::RuleInput input = rule_input(problem_, best_.candidate.mesh);
    input.micro_batch = best_.candidate.micro;
    input.global_batch = best_.global_batch;
    const auto notes = mesh::rule_notes(input);
    return fmt::format("6. Divisibility. {} of {} candidates break no rule. Of the best: {}.",
                       grouped(answer_.result.legal), grouped(answer_.result.judged),
                       notes.empty() ? "everything divides" : join(notes, "; "));
  }

  std::string candidates() const {
    std::string text = fmt::format("7. To benchmark: {}.", describe(best_));
    for (std::size_t i = 1; i < std::min(most_losers, answer_.result.plans.size()); ++i) {
      const Plan& plan = answer_.result.plans[i];
      text += fmt::format(" {}: {}.", describe(plan), loses(plan));
    }
    for (const Baseline& row : answer_.baselines) {
      text += row.plan
                  ? fmt::format(" Baseline {} ({}): {}.", row.name, describe(*row.plan), loses(*row.plan))
                  : fmt::format(" Baseline {}: not legal, {}.", row.name, row.broken.back());
    }
    return text;
  }

  const TrainingAnswer& answer_;
  const Plan& best_;
  const Problem& problem_;
};

}  // namespace

std::vector<std::string> explanation_of(const TrainingAnswer& answer) {
  return answer.result.plans.empty() ? std::vector<std::string>() : Explanation(answer).run();
}

}  // namespace ndmesh::plan
