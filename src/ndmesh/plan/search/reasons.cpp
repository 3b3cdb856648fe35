#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "ndmesh/base/text.h"
#include "ndmesh/base/units.h"
#include "ndmesh/job/names.h"
#include "ndmesh/plan/search/answer.h"

namespace ndmesh::plan {
namespace {

using mesh::Axis;

/// What an axis is for, before any number.
std::string_view purpose_of(std::string_view axis) {
  if (axis == "tp") return "cuts matrices, heads and their activations";
  if (axis == "cp") return "cuts the sequence, so activations";
  if (axis == "pp") return "cuts the layers, sending only activations";
  if (axis == "dp_shard") return "takes batch, and shares parameters, gradients and states as zero says";
  if (axis == "dp_replicate") return "takes batch, with whole copies";
  return "cuts the experts";
}

struct UsedAxis {
  std::string name;
  std::int64_t size;
};

std::vector<UsedAxis> used_axes(const mesh::MeshSizes& sizes) {
  std::vector<UsedAxis> used;
  for (const Axis axis : mesh::all_axes) {
    if (sizes.size(axis) > 1) {
      used.push_back({std::string(mesh::name_of(axis)), sizes.size(axis)});
    }
  }
  if (sizes.ep > 1) {
    used.push_back({"ep", sizes.ep});
  }
  return used;
}

/// The question's keys, but this axis is 1 and the other axes are open.
Held without(const Held& held, std::string_view name) {
  Held open = held;
  open.open_mesh();
  if (name == "ep") {
    open.ep = 1;
    return open;
  }
  open.size(*mesh::axis_from_name(name)) = 1;
  if (name == "dp_shard") {
    open.zero.reset();
  }
  return open;
}

std::string compare(const TrainingAnswer& answer, const Plan& plan, const std::optional<Plan>& other) {
  if (!other) {
    return "without it no mesh is legal";
  }
  const std::string best = describe(*other);
  if (!other->fits) {
    return fmt::format("without it nothing fits: {} {}", best, shortage(answer, *other));
  }
  if (!plan.fits) {
    return fmt::format("without it {} fits", best);
  }
  const double with = tokens_per_second(answer.question.problem, plan);
  const double without = tokens_per_second(answer.question.problem, *other);
  const std::string times =
      fmt::format("{} a step with {} exposed, {} bubble and {} a device, here {} with {}, {} and {}",
                  duration(other->time.seconds), duration(other->time.exposed), duration(other->time.bubble),
                  binary_bytes(other->worst.reserved), duration(plan.time.seconds),
                  duration(plan.time.exposed), duration(plan.time.bubble), binary_bytes(plan.worst.reserved));
  if (without > with) {
    return fmt::format("without it a plan is {:.1f} % faster: {}: {}", 100 * (without / with - 1), best,
                       times);
  }
  return fmt::format("without it the best plan is {:.1f} % slower: {}: {}", 100 * (with / without - 1), best,
                     times);
}

}  // namespace

double exposed_over(const Plan& plan, std::string_view axis) {
  double seconds = 0;
  for (const Exposed& entry : plan.time.by_collective) {
    seconds += split(entry.what.substr(0, entry.what.find('/')), '+').back() == axis ? entry.seconds : 0;
  }
  return seconds;
}

std::string shortage(const TrainingAnswer& answer, const Plan& plan) {
  const cluster::Cluster& cluster = answer.question.problem.cluster;
  std::string text;
  if (plan.worst.reserved > answer.allowed_bytes) {
    text = fmt::format("needs {} of {} a device", binary_bytes(plan.worst.reserved),
                       binary_bytes(answer.allowed_bytes));
  }
  if (cluster.host_memory_bytes > 0 && plan.node_host_bytes > cluster.host_memory_bytes) {
    text += fmt::format("{}offloads {} to the {} of a node", text.empty() ? "" : ", and ",
                        binary_bytes(plan.node_host_bytes), binary_bytes(cluster.host_memory_bytes));
  }
  return text;
}

std::string schedule_text(const Plan& plan) {
  const std::string name = plan.schedule_file.empty()
                               ? std::string(schedule::name_of(plan.candidate.schedule))
                               : std::filesystem::path(plan.schedule_file).filename().string();
  return plan.candidate.chunks > 1 ? fmt::format("{} x {}", name, plan.candidate.chunks) : name;
}

std::string describe(const Plan& plan) {
  const Candidate& c = plan.candidate;
  std::string text =
      fmt::format("{}, micro {} x {}, zero {}", c.mesh.name(), c.micro, micro_batches(plan), c.zero);
  if (c.mesh.pp > 1) {
    text += ", " + schedule_text(plan);
  }
  if (c.recompute.policy != job::Recompute::Policy::none) {
    text += fmt::format(", recompute {}", job::yaml_of(c.recompute));
  }
  if (c.offload != job::Offload::none) {
    text += fmt::format(", offload {}", job::name_of(c.offload));
  }
  if (c.offload_activations) {
    text += ", activations on the host";
  }
  return text;
}

std::vector<Without> without_axes(const TrainingQuestion& question, const std::vector<Plan>& plans) {
  std::vector<Without> list;
  for (const Plan& plan : plans) {
    for (const UsedAxis& axis : used_axes(plan.candidate.mesh)) {
      const bool known = std::any_of(list.begin(), list.end(),
                                     [&](const Without& entry) { return entry.axis == axis.name; });
      if (!known) {
        list.push_back({axis.name, best_plan(question.problem, without(question.held, axis.name))});
      }
    }
  }
  return list;
}

std::vector<std::string> reasons_of(const TrainingAnswer& answer, const Plan& plan) {
  std::vector<std::string> reasons;
  for (const UsedAxis& axis : used_axes(plan.candidate.mesh)) {
    const auto entry = std::find_if(answer.without.begin(), answer.without.end(),
                                    [&](const Without& other) { return other.axis == axis.name; });
    if (entry != answer.without.end()) {
      reasons.push_back(fmt::format("{} {} {}; {}", axis.name, axis.size, purpose_of(axis.name),
                                    compare(answer, plan, entry->plan)));
    }
  }
  return reasons;
}

}  // namespace ndmesh::plan
