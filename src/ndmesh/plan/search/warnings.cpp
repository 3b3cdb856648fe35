#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ndmesh/base/integers.h"
#include "ndmesh/base/text.h"
#include "ndmesh/base/units.h"
#include "ndmesh/model/config.h"
#include "ndmesh/plan/search/answer.h"

namespace ndmesh::plan {
namespace {

constexpr double large_bubble = 0.15;
constexpr double large_exposed = 0.2;
constexpr double large_padding = 0.01;
constexpr double large_skew = 1.2;
constexpr double little_attention = 0.2;
constexpr std::int64_t few_tokens = 2048;               ///< of one forward on one device
constexpr std::int64_t small_shard = 1 << 20;           ///< bytes of a unit on one rank
constexpr std::int64_t many_batch_tokens = 32'000'000;  ///< of one step

/// What the conditions look at: the first plan and its question.
struct Case {
  const TrainingAnswer& answer;
  const Plan& plan;

  const Problem& problem() const { return answer.question.problem; }
  const Candidate& candidate() const { return plan.candidate; }
  const mesh::MeshSizes& mesh() const { return plan.candidate.mesh; }
  double share(double seconds) const { return seconds / plan.time.seconds; }

  /// The level of an axis that leaves the innermost domain; nothing when it stays inside, or is not used.
  std::string outer_level(std::string_view axis) const {
    const auto& inner = problem().cluster.levels.front().name;
    for (const AxisLevel& level : plan.levels) {
      if (level.axis == axis && level.level != inner) {
        return level.level;
      }
    }
    return {};
  }
};

struct Row {
  std::string_view name;
  std::string_view condition;
  std::string (*text)(const Case&);  ///< empty when the condition does not hold
};

std::string across(const Case& c, std::string_view axis, std::string_view advice) {
  const std::string level = c.outer_level(axis);
  return level.empty() ? ""
                       : fmt::format("{} leaves the {} domain for {}: {} of a step exposed; {}", axis,
                                     c.problem().cluster.levels.front().name, level,
                                     duration(exposed_over(c.plan, axis)), advice);
}

std::string tp_across(const Case& c) {
  return across(c, "tp", "every block waits for it twice in each direction");
}

std::string shard_across(const Case& c) {
  const bool gathers = c.candidate().zero == 3;
  return gathers ? across(c, "dp_shard", "dp_replicate across nodes keeps the gathers near") : "";
}

std::string ep_across(const Case& c) {
  return across(c, "ep", "every token crosses it twice a MoE layer in each direction");
}

std::string tiny_layers(const Case& c) {
  const std::int64_t ranks = c.mesh().dp_shard * c.mesh().cp;
  if (c.candidate().zero < 3 || ranks == 1) {
    return {};
  }
  const std::int64_t bytes =
      c.problem().model.parameter_count() / c.problem().model.layers * 2 / (ranks * c.mesh().tp);
  return bytes >= small_shard ? ""
                              : fmt::format(
                                    "a block is {} on each of {} shard ranks: gathering it is a matter of "
                                    "latency; fewer shard ranks, or zero 1",
                                    binary_bytes(bytes), ranks);
}

std::string short_context(const Case& c) {
  if (c.mesh().cp == 1) {
    return {};
  }
  const model::FlopsPerToken flops = model::flops_per_token(c.problem().model, c.problem().seq_len);
  const double share = flops.attention / flops.total();
  return share >= little_attention
             ? ""
             : fmt::format(
                   "cp {} with sequences of {} tokens, where attention is {:.0f} % of the work: it serves "
                   "memory and batch only",
                   c.mesh().cp, c.problem().seq_len, 100 * share);
}

std::string unequal_stages(const Case& c) {
  const std::int64_t stages = c.mesh().pp * c.candidate().chunks;
  const std::int64_t layers = c.problem().model.layers;
  const bool even = c.problem().layers.policy == job::StageLayers::Policy::even;
  return c.mesh().pp == 1 || !even || layers % stages == 0
             ? ""
             : fmt::format("{} layers on {} stages: {} of {} and {} of {}; the larger ones set the pace",
                           layers, stages, layers % stages, layers / stages + 1, stages - layers % stages,
                           layers / stages);
}

std::string bubble(const Case& c) {
  const double share = c.share(c.plan.time.bubble);
  if (share < large_bubble) {
    return {};
  }
  const std::int64_t batches = micro_batches(c.problem(), c.candidate());
  const double filling = mesh::pipeline_bubble(c.mesh().pp, batches);
  return fmt::format(
      "the pipeline waits for {:.0f} % of a step: {} micro-batches on {} stages{}", 100 * share, batches,
      c.mesh().pp,
      filling > share / 2
          ? ""
          : fmt::format(
                "; filling and draining it take {:.0f} %, so stages are unequal (the last has the head)",
                100 * filling));
}

std::string exposed(const Case& c) {
  return c.share(c.plan.time.exposed) < large_exposed
             ? ""
             : fmt::format("{:.0f} % of a step is exposed communication", 100 * c.share(c.plan.time.exposed));
}

std::string small_local_batch(const Case& c) {
  const std::int64_t tokens = c.candidate().micro * c.problem().seq_len / c.mesh().cp;
  return tokens >= few_tokens
             ? ""
             : fmt::format("a forward works on {} tokens a rank: products are too small for the device",
                           tokens);
}

std::string batch_limits(const Case& c) {
  const std::int64_t ranks = c.mesh().batch_ranks();
  const std::int64_t devices = c.problem().cluster.devices();
  const std::int64_t most = c.answer.question.max_batch;
  return ranks < most || ranks >= devices
             ? ""
             : fmt::format(
                   "the batch of {} sequences feeds at most {} batch ranks; on {} devices the rest goes to "
                   "other axes; plan.max_batch lets it grow",
                   most, most, devices);
}

std::string large_batch(const Case& c) {
  const std::int64_t tokens = c.plan.global_batch * c.problem().seq_len;
  return tokens <= many_batch_tokens
             ? ""
             : fmt::format("a step takes {} tokens; batches that large slow training down per token",
                           grouped(tokens));
}

std::string input_rate(const Case& c) {
  const double rate = c.problem().cluster.input_rate;
  const StepTime& time = c.plan.time;
  const auto tokens = static_cast<double>(c.plan.global_batch * c.problem().seq_len);
  return rate == 0 || time.input == 0
             ? ""
             : fmt::format("the input brings {} tokens/s, and a step waits for it {}; it could use {}",
                           scaled(rate), duration(time.input), scaled(tokens / (time.seconds - time.input)));
}

std::string padding(const Case& c) {
  const std::int64_t vocab = c.problem().model.vocab;
  const std::int64_t padded = round_up(vocab, c.mesh().tp * c.problem().profile.memory.vocabulary_multiple);
  const double share = static_cast<double>(padded - vocab) / static_cast<double>(vocab);
  return share < large_padding
             ? ""
             : fmt::format("the vocabulary is padded from {} to {} for tp {}", vocab, padded, c.mesh().tp);
}

std::string shared_heads(const Case& c) {
  const model::ModelSpec& model = c.problem().model;
  return model.latent || model.kv_heads == 0 || c.mesh().tp <= model.kv_heads
             ? ""
             : fmt::format("tp {} with {} KV heads: each head is held and computed {} times", c.mesh().tp,
                           model.kv_heads, c.mesh().tp / model.kv_heads);
}

std::string skew(const Case& c) {
  if (!c.problem().model.experts) {
    return {};
  }
  return c.problem().expert_skew < large_skew
             ? ""
             : fmt::format(
                   "the busiest expert rank has {:.2f} times the mean (expert.skew); the others wait for it",
                   c.problem().expert_skew);
}

std::string tight(const Case& c) {
  const double free = 1 - static_cast<double>(c.plan.worst.reserved) /
                              static_cast<double>(std::max<std::int64_t>(1, c.answer.allowed_bytes));
  return !c.plan.fits || free > 0.03
             ? ""
             : fmt::format("{:.1f} % of what may be used is left; fragmentation may take it", 100 * free);
}

std::string host_memory(const Case& c) {
  const cluster::Cluster& cluster = c.problem().cluster;
  const std::int64_t bytes = c.plan.node_host_bytes;
  if (bytes == 0 || (cluster.host_memory_bytes > 0 && bytes <= cluster.host_memory_bytes)) {
    return {};
  }
  return cluster.host_memory_bytes == 0
             ? fmt::format(
                   "offloading takes {} of a node's memory; the cluster does not say how much there is "
                   "(host memory)",
                   binary_bytes(bytes))
             : fmt::format("offloading takes {} of a node's memory, which has {}", binary_bytes(bytes),
                           binary_bytes(cluster.host_memory_bytes));
}

std::string checkpoints(const Case& c) {
  return c.share(c.plan.time.checkpoint) < 0.05
             ? ""
             : fmt::format("writing checkpoints takes {:.0f} % of the time",
                           100 * c.share(c.plan.time.checkpoint));
}

std::string not_reached(const Case& c) {
  const double wanted = c.answer.question.tokens_per_second;
  const double speed = tokens_per_second(c.problem(), c.plan);
  return wanted <= speed ? ""
                         : fmt::format("{} tokens/s are wanted, and the best plan gives {}", scaled(wanted),
                                       scaled(speed));
}

std::string only_planned(const Case& c) {
  const mesh::MeshSizes& m = c.mesh();
  const bool runs = m.cp == 1 && m.ep == 1 && m.etp == 1;
  return runs || c.problem().profile.name != "ndmesh"
             ? ""
             : "ndmesh train does not run this layout yet (plan.runtime names the frameworks that do)";
}

constexpr std::array<Row, 20> table = {{
    {"not reached", "the wanted tokens/s are above the best plan's", not_reached},
    {"only planned", "the target is ndmesh, which does not run the layout yet", only_planned},
    {"tp across nodes", "tp leaves the innermost domain", tp_across},
    {"fsdp across nodes", "zero 3 gathers over more than the innermost domain", shard_across},
    {"ep across nodes", "ep leaves the innermost domain", ep_across},
    {"tiny layers", "zero 3 with less than 1 MiB of a block on each rank", tiny_layers},
    {"short context", "cp while attention is less than 20 % of the work", short_context},
    {"unequal stages", "pp x chunks does not divide the layers, and `pipeline.layers` is even",
     unequal_stages},
    {"bubble", "the pipeline waits for 15 % of a step or more", bubble},
    {"exposed", "20 % of a step or more is exposed communication", exposed},
    {"small local batch", "a forward has fewer than 2048 tokens a rank", small_local_batch},
    {"batch limits dp", "there are as many batch ranks as sequences, and fewer than devices", batch_limits},
    {"large batch", "a step takes more than 32 million tokens", large_batch},
    {"input rate", "a step waits for input", input_rate},
    {"padding", "the vocabulary is padded by 1 % or more", padding},
    {"shared KV heads", "tp is above the number of KV heads", shared_heads},
    {"MoE skew", "the busiest expert rank has 1.2 times the mean or more", skew},
    {"tight memory", "less than 3 % of the allowed memory is left", tight},
    {"host memory", "offloading takes more host memory than there is, or is known", host_memory},
    {"checkpoints", "writing them takes 5 % of the time or more", checkpoints},
}};

}  // namespace

std::vector<WarningKind> all_warnings() {
  std::vector<WarningKind> kinds;
  for (const Row& row : table) {
    kinds.push_back({std::string(row.name), std::string(row.condition)});
  }
  return kinds;
}

std::vector<Warning> warnings_of(const TrainingAnswer& answer) {
  std::vector<Warning> warnings;
  if (answer.result.plans.empty()) {
    return warnings;
  }
  const Case subject{answer, answer.result.plans.front()};
  for (const Row& row : table) {
    if (std::string text = row.text(subject); !text.empty()) {
      warnings.push_back({std::string(row.name), std::move(text)});
    }
  }
  return warnings;
}

}  // namespace ndmesh::plan
