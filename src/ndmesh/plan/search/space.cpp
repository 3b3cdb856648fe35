#include "ndmesh/plan/search/space.h"

#include <algorithm>
#include <array>

#include "ndmesh/plan/integers.h"
#include "ndmesh/plan/search/held_pipeline.h"
#include "ndmesh/schedule/interleaving.h"

namespace ndmesh::plan {
namespace {

using mesh::Axis;
using Policy = job::Recompute::Policy;
using schedule::Kind;

/// From the fastest-varying rank to the slowest. Tensor parallelism is always on the fastest links; the
/// pipeline goes outermost, or inside the data axes, where its sends stay near and gradients cross the slow
/// links once.
constexpr std::array<mesh::AxisOrder, 4> sensible_orders = {
    mesh::default_order, mesh::AxisOrder{Axis::tp, Axis::cp, Axis::pp, Axis::dp_shard, Axis::dp_replicate},
    mesh::AxisOrder{Axis::tp, Axis::dp_shard, Axis::cp, Axis::dp_replicate, Axis::pp},
    mesh::AxisOrder{Axis::tp, Axis::cp, Axis::dp_shard, Axis::pp, Axis::dp_replicate}};

/// In this order rules refuse most branches early.
constexpr std::array<Axis, mesh::axis_count> walk_order = {Axis::tp, Axis::pp, Axis::cp, Axis::dp_shard,
                                                           Axis::dp_replicate};

std::size_t used_bits(const mesh::MeshSizes& sizes) {
  std::size_t bits = 0;
  for (const Axis axis : mesh::all_axes) {
    bits |= static_cast<std::size_t>(sizes.size(axis) > 1) << static_cast<unsigned>(axis);
  }
  return bits;
}

/// The axes of `bits` as `order` has them.
std::vector<Axis> restricted(const mesh::AxisOrder& order, std::size_t bits) {
  std::vector<Axis> axes;
  std::copy_if(order.begin(), order.end(), std::back_inserter(axes),
               [&](Axis axis) { return (bits >> static_cast<unsigned>(axis) & 1) != 0; });
  return axes;
}

/// Orders that differ on the axes of `bits`.
std::vector<mesh::AxisOrder> distinct_orders(std::size_t bits) {
  std::vector<mesh::AxisOrder> orders;
  for (const mesh::AxisOrder& order : sensible_orders) {
    const bool is_new = std::none_of(orders.begin(), orders.end(), [&](const mesh::AxisOrder& other) {
      return restricted(order, bits) == restricted(other, bits);
    });
    if (is_new) {
      orders.push_back(order);
    }
  }
  return orders;
}

std::vector<job::Recompute> searched_recompute(const SupportProfile& support, bool offload_activations) {
  const std::vector<Policy>& supported =
      offload_activations ? support.offload_activations : support.recompute;
  const std::array<job::Recompute, 5> all = {job::Recompute{.policy = Policy::none},
                                             {.policy = Policy::selective},
                                             {.policy = Policy::every, .layers = 4},
                                             {.policy = Policy::every, .layers = 2},
                                             {.policy = Policy::full}};
  std::vector<job::Recompute> searched;
  std::copy_if(all.begin(), all.end(), std::back_inserter(searched), [&](const job::Recompute& recompute) {
    return std::find(supported.begin(), supported.end(), recompute.policy) != supported.end();
  });
  return searched;
}

/// Whether `shape` has no problems, without words for the most frequent one.
bool is_schedule(const schedule::Shape& shape) {
  return (shape.kind != Kind::interleaved ||
          schedule::interleaves(shape.micro_batches, shape.ranks, schedule::Interleaving::flexible)) &&
         schedule::problems_of(shape).empty();
}

}  // namespace

Space::Space(const Problem& problem, const Held& held)
    : problem_(problem),
      held_(held),
      rules_(rule_input(problem, {})),
      device_divisors_(divisors(problem.cluster.devices())),
      batch_divisors_(held.micro ? std::vector{*held.micro} : divisors(problem.global_batch)),
      expert_sizes_({held.ep.value_or(1)}),
      recompute_(held.recompute ? std::vector{*held.recompute}
                                : searched_recompute(problem.profile.support, held.offload_activations)),
      alone_(shardings(false)),
      shared_(shardings(true)),
      whole_({{}}),
      staged_(pipelinings()) {
  rules_.micro_batch = held.micro.value_or(1);
  if (problem.model.experts && !held.ep) {
    expert_sizes_ = divisors(problem.model.experts->count);
  }
  for (std::size_t bits = 0; bits < std::size_t{1} << mesh::axis_count; ++bits) {
    orders_.push_back(held.order ? std::vector{*held.order} : distinct_orders(bits));
  }
}

std::vector<Sharding> Space::shardings(bool shares) const {
  std::vector<Sharding> all;
  for (std::int64_t zero = 0; zero <= 3; ++zero) {
    if (held_.zero ? zero == *held_.zero : shares || zero == 0) {
      all.push_back({zero, true});
    }
  }
  if (all.back().zero < 3) {
    return all;
  }
  if (held_.reshard) {
    all.back().reshard = *held_.reshard;
  } else if (problem_.profile.support.keeps_gathered) {
    all.push_back({3, false});
  }
  return all;
}

std::vector<Pipelining> Space::pipelinings() const {
  if (problem_.list.schedule) {
    const schedule::Shape& shape = problem_.list.schedule->shape;
    return {{shape.kind, shape.chunks}};
  }
  const auto listed = static_cast<std::int64_t>(problem_.layers.layers.size());
  std::vector<Pipelining> all;
  for (const Kind kind : problem_.profile.support.schedules) {
    if (held_.schedule && kind != *held_.schedule) {
      continue;
    }
    const std::int64_t least = schedule::least_chunks(kind);
    const std::int64_t most =
        kind == Kind::interleaved ? std::max({most_chunks, held_.chunks.value_or(0), listed / 2}) : least;
    for (std::int64_t chunks = least; chunks <= most; ++chunks) {
      if (held_.chunks.value_or(chunks) == chunks) {
        all.push_back({kind, chunks});
      }
    }
  }
  return all;
}

const std::vector<Sharding>& Space::shardings(const mesh::MeshSizes& mesh) const {
  return mesh.dp_shard > 1 || mesh.cp > 1 ? shared_ : alone_;
}

const std::vector<Pipelining>& Space::pipelinings(const mesh::MeshSizes& mesh) const {
  return mesh.pp > 1 ? staged_ : whole_;
}

const std::vector<mesh::AxisOrder>& Space::orders(const mesh::MeshSizes& mesh) const {
  return orders_[used_bits(mesh)];
}

std::int64_t Space::count(const mesh::MeshSizes& mesh) const {
  return static_cast<std::int64_t>(shardings(mesh).size() * pipelinings(mesh).size() *
                                   batch_divisors_.size() * recompute_.size() * orders(mesh).size());
}

MeshOptions Space::options(const mesh::MeshSizes& mesh) const {
  MeshOptions options{.mesh = mesh,
                      .sharding = {},
                      .staging = {},
                      .recompute = recompute_,
                      .orders = orders(mesh),
                      .offload = held_.offload,
                      .offload_activations = held_.offload_activations,
                      .sequence_parallel = held_.sequence_parallel};
  mesh::RuleInput input = rules_;
  input.mesh = mesh;
  for (const Sharding& sharding : shardings(mesh)) {
    input.zero = sharding.zero;
    if (mesh::is_legal(input)) {
      options.sharding.push_back(sharding);
    }
  }
  input.zero.reset();
  input.micro_batch = 0;
  for (const Pipelining& pipelining : pipelinings(mesh)) {
    input.chunks = pipelining.chunks;
    if (allows_stages(problem_, held_, mesh.pp, pipelining.chunks) && mesh::is_legal(input)) {
      options.staging.push_back(staging(mesh, pipelining));
    }
  }
  return options;
}

Staging Space::staging(const mesh::MeshSizes& mesh, const Pipelining& pipelining) const {
  Staging staging{pipelining, {}};
  const std::int64_t sequences = problem_.global_batch / mesh.batch_ranks();
  for (const std::int64_t micro : batch_divisors_) {
    if (sequences % micro != 0) {
      continue;
    }
    const schedule::Shape shape = {.kind = pipelining.kind,
                                   .ranks = mesh.pp,
                                   .chunks = pipelining.chunks,
                                   .micro_batches = sequences / micro};
    const auto& list = problem_.list.schedule;
    if (mesh.pp == 1 || (list ? shape.micro_batches == list->shape.micro_batches : is_schedule(shape))) {
      staging.micro.push_back(micro);
    }
  }
  return staging;
}

std::int64_t MeshOptions::count() const {
  std::size_t micro = 0;
  for (const Staging& one : staging) {
    micro += one.micro.size();
  }
  return static_cast<std::int64_t>(sharding.size() * micro * recompute.size() * orders.size());
}

Space::Meshes Space::meshes() const {
  Meshes found;
  Branch root;
  root.rest = problem_.cluster.devices();
  walk(root, found);
  return found;
}

/// A rule that the sizes so far break is broken by all that follow: those are counted, and asked nothing.
void Space::walk(Branch branch, Meshes& found) const {
  if (branch.axis == walk_order.size()) {
    return add_expert_meshes(branch, found);
  }
  const Axis axis = walk_order[branch.axis];
  const bool is_last = branch.axis + 1 == walk_order.size();
  for (const std::int64_t size : device_divisors_) {
    if (branch.rest % size != 0 || (is_last && size != branch.rest) ||
        held_.size(axis).value_or(size) != size) {
      continue;
    }
    Branch next = branch;
    next.sizes.size(axis) = size;
    next.axis = branch.axis + 1;
    next.rest = branch.rest / size;
    next.is_legal = branch.is_legal && is_legal(next.sizes);
    walk(next, found);
  }
}

void Space::add_expert_meshes(const Branch& branch, Meshes& found) const {
  mesh::MeshSizes sizes = branch.sizes;
  const auto add = [&](std::int64_t ep, std::int64_t etp) {
    sizes.ep = ep;
    sizes.etp = etp;
    if (branch.is_legal && (ep * etp == 1 || is_legal(sizes))) {
      found.legal.push_back(sizes);
    } else {
      found.refused += count(sizes);
    }
  };
  for (const std::int64_t ep : expert_sizes_) {
    add(ep, held_.etp.value_or(1));
    if (!held_.etp && problem_.model.experts && sizes.tp > 1) {
      add(ep, sizes.tp);
    }
  }
}

bool Space::is_legal(const mesh::MeshSizes& sizes) const {
  mesh::RuleInput input = rules_;
  input.mesh = sizes;
  return mesh::is_legal(input);
}

}  // namespace ndmesh::plan
