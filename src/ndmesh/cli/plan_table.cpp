#include "ndmesh/cli/plan_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ndmesh/base/text.h"
#include "ndmesh/base/units.h"
#include "ndmesh/job/names.h"

namespace ndmesh::cli {
namespace {

using plan::Plan;

constexpr std::size_t line_width = 110;

/// Words of `text` in lines, the later ones indented.
void print_wrapped(const std::string& text, std::size_t indent) {
  std::size_t column = 0;
  for (const std::string& word : split(text, ' ')) {
    if (column > indent && column + word.size() + 1 > line_width) {
      fmt::print("\n{:{}}", "", indent);
      column = indent;
    } else if (column > 0) {
      fmt::print(" ");
      ++column;
    }
    fmt::print("{}", word);
    column += word.size();
  }
  fmt::print("\n");
}

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / (std::int64_t{1} << 30));
}

std::string percent(double part, double whole) {
  return fmt::format("{:.1f}", 100 * part / whole);
}

void print_question(const plan::TrainingAnswer& answer) {
  const plan::Problem& p = answer.question.problem;
  fmt::print("{} of {} parameters on {} ({} device{}), for {}\n", p.model.family,
             grouped(p.model.parameter_count()), p.cluster.name, p.cluster.devices(),
             p.cluster.devices() > 1 ? "s" : "", p.profile.name);
  const std::int64_t most = answer.question.max_batch;
  fmt::print("{}{} sequences of {} tokens a step, {}; {} GiB usable a device, {} after headroom\n",
             p.global_batch, most > p.global_batch ? fmt::format(" to {}", most) : "", p.seq_len,
             name_of(p.precision.compute), gib(p.cluster.usable_bytes), gib(answer.allowed_bytes));
  for (const std::string& sentence : answer.question.assumed) {
    print_wrapped("assumed: " + sentence, 2);
  }
  fmt::print("{} candidates judged in {}: {} legal, {} simulated\n\n", grouped(answer.result.judged),
             duration(answer.result.seconds), grouped(answer.result.legal), grouped(answer.result.simulated));
}

constexpr std::string_view row_format =
    "{:<44} {:>9} {:<14} {:>4} {:<12} {:>9} {:>10} {:>9} {:>6} {:>7} {:>6}  {}\n";

const std::string& inner_level(const plan::TrainingAnswer& answer) {
  return answer.question.problem.cluster.levels.front().name;
}

void print_header(const plan::TrainingAnswer& answer) {
  fmt::print(fmt::runtime(row_format), "mesh", "micro", "schedule", "zero", "recompute", "GiB", "step",
             "tok/s/dev", "MFU %", "expos %", "bubb %", "beyond " + inner_level(answer));
}

/// The axes that leave the innermost level, by the level that they reach: "cp dp_shard: leaf, pp: spine".
std::string outer_levels(const Plan& plan, const std::string& inner) {
  std::vector<std::pair<std::string, std::string>> groups;
  for (const plan::AxisLevel& level : plan.levels) {
    if (level.level == inner) {
      continue;
    }
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& other) { return other.first == level.level; });
    if (group == groups.end()) {
      groups.emplace_back(level.level, level.axis);
    } else {
      group->second += " " + level.axis;
    }
  }
  std::vector<std::string> parts;
  for (const auto& [level, axes] : groups) {
    parts.push_back(fmt::format("{}: {}", axes, level));
  }
  return parts.empty() ? "-" : join(parts);
}

void print_row(const plan::TrainingAnswer& answer, const std::string& name, const Plan& plan) {
  const plan::Candidate& c = plan.candidate;
  fmt::print(fmt::runtime(row_format), name, fmt::format("{} x {}", c.micro, micro_batches(plan)),
             c.mesh.pp > 1 ? schedule_text(plan) : "-",
             fmt::format("{}{}", c.zero, c.zero == 3 && !c.reshard ? "k" : ""), job::yaml_of(c.recompute),
             gib(plan.worst.reserved) + (plan.fits ? " " : "!"), duration(plan.time.seconds),
             fmt::format("{:.0f}", plan.time.tokens_per_second_per_device),
             plan.time.mfu > 0 ? fmt::format("{:.1f}", 100 * plan.time.mfu) : "-",
             percent(plan.time.exposed, plan.time.seconds), percent(plan.time.bubble, plan.time.seconds),
             outer_levels(plan, inner_level(answer)));
}

/// Memory by category and the split of the step, of every plan of the table.
void print_details(const plan::TrainingAnswer& answer) {
  fmt::print("\n{:<44} {:>6}", "GiB of the worst rank, at its peak", "rank");
  constexpr std::size_t shown = static_cast<std::size_t>(MemoryCategory::kv_cache);  // none in training
  for (std::size_t i = 0; i < shown; ++i) {
    fmt::print(" {:>10.10}", memory_category_names[i]);
  }
  for (const Plan& plan : answer.result.plans) {
    fmt::print("\n{:<44} {:>6}", plan.candidate.mesh.name(), plan.worst.rank);
    for (std::size_t i = 0; i < shown; ++i) {
      fmt::print(" {:>10}", gib(plan.worst.at_peak.by_category[i]));
    }
  }
  fmt::print("\n\n{:<44} {:>8} {:>8} {:>8} {:>9} {:>8} {:>10} {:>8}  {}\n", "percent of a step", "compute",
             "exposed", "bubble", "optimizer", "input", "checkpoint", "other", "exposed, by axis/collective");
  for (const Plan& plan : answer.result.plans) {
    const plan::StepTime& t = plan.time;
    std::vector<std::string> exposed;
    for (const plan::Exposed& entry : t.by_collective) {
      exposed.push_back(fmt::format("{} {}", entry.what, percent(entry.seconds, t.seconds)));
    }
    fmt::print("{:<44} {:>8} {:>8} {:>8} {:>9} {:>8} {:>10} {:>8}  {}\n", plan.candidate.mesh.name(),
               percent(t.compute, t.seconds), percent(t.exposed, t.seconds), percent(t.bubble, t.seconds),
               percent(t.optimizer, t.seconds), percent(t.input, t.seconds), percent(t.checkpoint, t.seconds),
               percent(t.other, t.seconds), join(exposed));
  }
}

/// Of every stage, where some have more than others.
void print_layers(const Plan& plan) {
  if (std::ranges::equal(plan.layers, std::vector(plan.layers.size(), plan.layers.front()))) {
    return;
  }
  fmt::print("  ");
  print_wrapped(fmt::format("layers by stage: {}", fmt::join(plan.layers, " ")), 4);
}

void print_memory(const plan::TrainingAnswer& answer, const Plan& plan) {
  fmt::print("memory of rank {} (stage {}), which holds most, GiB:", plan.worst.rank, plan.worst.stage);
  for (std::size_t i = 0; i < memory_category_count; ++i) {
    if (const std::int64_t bytes = plan.worst.at_peak.by_category[i]; bytes > 0) {
      fmt::print("  {} {}", memory_category_names[i], gib(bytes));
    }
  }
  fmt::print("\n  {} reserved of {} allowed; {} of it in no tensor: device context and communicators",
             gib(plan.worst.reserved), gib(answer.allowed_bytes), gib(plan.worst.outside));
  fmt::print("{}\n", plan.node_host_bytes > 0
                         ? fmt::format("; {} of host memory a node", gib(plan.node_host_bytes))
                         : "");
  if (plan.stages.size() > 1) {
    std::vector<std::string> stages;
    for (const plan::StageBudget& budget : plan.stages) {
      stages.push_back(gib(budget.reserved));
    }
    fmt::print("  ");
    print_wrapped("reserved by stage: " + join(stages, " "), 4);
    print_layers(plan);
  }
}

void print_time(const Plan& plan) {
  const plan::StepTime& t = plan.time;
  fmt::print("step {}: compute {}, exposed {}, bubble {}, optimizer {}, input {}, checkpoint {}, other {}\n",
             duration(t.seconds), duration(t.compute), duration(t.exposed), duration(t.bubble),
             duration(t.optimizer), duration(t.input), duration(t.checkpoint), duration(t.other));
  for (const plan::Exposed& entry : t.by_collective) {
    fmt::print("  exposed {}: {}\n", entry.what, duration(entry.seconds));
  }
}

void print_best(const plan::TrainingAnswer& answer) {
  const Plan& best = answer.result.plans.front();
  if (best.fits) {
    fmt::print("\nbest: {}\n", describe(best));
  } else {
    fmt::print("\nnothing fits; the nearest {}: {}\n", shortage(answer, best), describe(best));
  }
  std::vector<std::string> order;
  for (const mesh::Axis axis : best.candidate.order) {
    if (best.candidate.mesh.size(axis) > 1) {
      order.emplace_back(name_of(axis));
    }
  }
  std::vector<std::string> levels;
  for (const plan::AxisLevel& level : best.levels) {
    levels.push_back(level.axis + " on " + level.level);
  }
  const mesh::MeshSizes& sizes = best.candidate.mesh;
  if (sizes.ep * sizes.etp > 1) {
    fmt::print("{} ranks twice: {}, and for experts pp={},edp={},ep={},etp={}\n", sizes.world(), sizes.name(),
               sizes.pp, sizes.stage_ranks() / (sizes.ep * sizes.etp), sizes.ep, sizes.etp);
  }
  if (!order.empty()) {
    fmt::print("ranks, fastest axis first: {}; {}\n", join(order), join(levels));
  }
  print_memory(answer, best);
  print_time(best);
  for (const std::string& reason : best.reasons) {
    print_wrapped("- " + reason, 2);
  }
}

void print_baselines(const plan::TrainingAnswer& answer) {
  fmt::print("\nbaselines\n");
  for (const plan::Baseline& row : answer.baselines) {
    if (row.plan) {
      print_row(answer, fmt::format("{}: {}", row.name, row.plan->candidate.mesh.name()), *row.plan);
    } else {
      print_wrapped(fmt::format("{}: not legal: {}", row.name, row.broken.back()), 2);
    }
  }
}

void print_fixes(const plan::TrainingAnswer& answer) {
  const bool is_wanting =
      !answer.fits() || std::any_of(answer.warnings.begin(), answer.warnings.end(),
                                    [](const auto& w) { return w.name == "not reached"; });
  if (answer.fixes.empty()) {
    fmt::print("{}",
               is_wanting ? "\nnone of the changes that were tried is enough, nor are more devices\n" : "");
    return;
  }
  fmt::print("\nways to {}\n", answer.fits() ? "reach what is wanted" : "fit");
  for (const plan::Fix& fix : answer.fixes) {
    print_row(answer, fix.change, fix.plan);
    fmt::print("  {}\n", describe(fix.plan));
  }
}

}  // namespace

void print_answer(const plan::TrainingAnswer& answer, bool with_explanation) {
  print_question(answer);
  print_header(answer);
  for (const Plan& plan : answer.result.plans) {
    print_row(answer, plan.candidate.mesh.name(), plan);
  }
  if (with_explanation) {
    print_details(answer);
  }
  print_best(answer);
  print_baselines(answer);
  for (const plan::Warning& warning : answer.warnings) {
    print_wrapped(fmt::format("warning, {}: {}", warning.name, warning.text), 2);
  }
  print_fixes(answer);
  if (with_explanation) {
    for (const std::string& paragraph : explanation_of(answer)) {
      fmt::print("\n");
      print_wrapped(paragraph, 3);
    }
  }
}

}  // namespace ndmesh::cli
