#include "ndmesh/plan/time/data_time.h"

#include <algorithm>

#include "ndmesh/plan/time/groups.h"

namespace ndmesh::plan {
namespace {

/// Hides `seconds`, done in `parts` equal pieces, under `window` seconds of compute; the first (or last)
/// piece has nothing to hide under.
Shown hide(double seconds, double parts, double window, bool overlapped) {
  if (!overlapped || seconds <= 0) {
    return {.exposed = std::max(0.0, seconds), .hidden = 0};
  }
  const double share = 1 - 1 / std::max(1.0, parts);
  const double hidden = std::min(seconds, window) * share;
  return {.exposed = seconds - hidden, .hidden = hidden};
}

double units(const Work& work) {
  return std::max(1.0, work.layers);
}

/// Seconds of `collective` over everything that the rank holds, unit by unit: `bytes` for each element.
template <class Collective>
double by_units(const Work& work, const DataGroups& groups, double bytes, const Collective& collective) {
  const double count = units(work);
  double seconds = count * collective(groups.shard, bytes * work.dense / count);
  if (work.expert > 0) {
    seconds += count * collective(groups.expert, bytes * work.expert / count);
  }
  return seconds;
}

/// Seconds of `pass` that what the data axes send can hide under: where that crosses the host link, activations do
/// not leave it free.
double window_of(const Pass& pass, bool crosses_host_link) {
  return pass.total() - (crosses_host_link ? pass.wait(Wait::offload) + pass.wait(Wait::reload) : 0);
}

/// Whether what a rank owns of parameters and gradients is in host memory.
bool all_on_host(const Candidate& candidate) {
  return candidate.zero == 3 && candidate.offload == job::Offload::all;
}

}  // namespace

DataGroups data_groups(const Candidate& candidate, const Collectives& collectives) {
  return {.shard = collectives.group(extents_of(candidate, mesh::shard_axes)),
          .replicate = collectives.group(extents_of(candidate, {mesh::Axis::dp_replicate})),
          .all = collectives.group(extents_of(candidate, mesh::loss_axes)),
          .expert = collectives.group(extents_of(candidate, mesh::ExpertAxis::edp))};
}

DataTime data_time(const Problem& problem, const Candidate& candidate, const DataGroups& groups,
                   const Collectives& collectives, const Work& work, const Rates& rates) {
  const TimeProfile& profile = problem.profile.time;
  const double element = static_cast<double>(bytes_of(problem.precision.compute));
  const double gradient = static_cast<double>(profile.gradient_bytes);
  const double parts = units(work);
  const double forward = window_of(work.forward, all_on_host(candidate));
  const double backward = window_of(work.input_grad, all_on_host(candidate)) + work.weight_grad.total();
  const auto gather = [&](const GroupCost& group, double bytes) {
    return collectives.all_gather(group, bytes);
  };
  const auto sum = [&](const GroupCost& group, double bytes) { return collectives.all_reduce(group, bytes); };
  DataTime time;
  if (candidate.zero == 0) {
    DataGroups whole = groups;
    whole.shard = groups.all;
    time.reduce_last = hide(by_units(work, whole, gradient, sum), parts, backward, profile.overlap_gradients);
    return time;
  }
  const auto host_link = [&](double bytes) {
    return all_on_host(candidate) ? updated_elements(candidate, groups, work) * bytes / rates.host_bandwidth
                                  : 0;
  };
  double window = backward;
  const double gathered = by_units(work, groups, element, gather);
  if (candidate.zero == 3) {
    const double brought = gathered + host_link(element);
    time.gather_forward = hide(brought, parts, forward, profile.prefetch);
    time.gather_backward = hide(candidate.reshard ? brought : 0, parts, backward, profile.prefetch);
    window = std::max(0.0, window - time.gather_backward.hidden);
  } else {
    const auto turns = [&](const GroupCost& group, double bytes) {
      return collectives.broadcasts(group, bytes);
    };
    const double updated = profile.broadcasts_updates ? by_units(work, groups, element, turns) : gathered;
    time.gather_updated = hide(updated, parts, forward, profile.overlap_parameters);
  }
  const bool each = candidate.zero >= 2 && profile.reduce_each_micro_batch;
  Shown& reduced = each ? time.reduce_each : time.reduce_last;
  reduced = hide(by_units(work, groups, gradient, gather) + host_link(gradient), parts, window,
                 profile.overlap_gradients);
  const double shard = (work.dense / groups.shard.ranks) * gradient;
  time.replicate = hide(parts * collectives.all_reduce(groups.replicate, shard / parts), parts,
                        std::max(0.0, window - reduced.hidden), profile.overlap_gradients);
  return time;
}

double updated_elements(const Candidate& candidate, const DataGroups& groups, const Work& work) {
  const bool shared = candidate.zero > 0;
  return work.dense / (shared ? groups.shard.ranks : 1) + work.expert / (shared ? groups.expert.ranks : 1);
}

double optimizer_seconds(const Candidate& candidate, const Rates& rates, double elements) {
  if (candidate.offload == job::Offload::none) {
    return elements * rates.optimizer_bytes / rates.memory_bandwidth;
  }
  const double crossing =
      all_on_host(candidate) ? 0 : 4 + rates.element_bytes;  // gradients there, values back
  const double transfer = elements * crossing / rates.host_bandwidth;
  return transfer + elements * rates.optimizer_bytes / rates.host_optimizer_bandwidth;
}

}  // namespace ndmesh::plan
