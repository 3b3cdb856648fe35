#include "ndmesh/plan/search/held_pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"
#include "ndmesh/job/names.h"
#include "ndmesh/plan/integers.h"

namespace ndmesh::plan {
namespace {

using Policy = job::StageLayers::Policy;

bool lists_layers(const Problem& problem) {
  return problem.layers.policy == Policy::given;
}

std::int64_t listed_stages(const Problem& problem) {
  return static_cast<std::int64_t>(problem.layers.layers.size());
}

/// What pipeline.layers lists.
class LayersCheck {
 public:
  LayersCheck(const Problem& problem, const Held& held, Problems& problems)
      : problem_(problem), held_(held), problems_(problems) {}

  void run() {
    if (!lists_layers(problem_) || held_.pp == 1) return;
    const std::vector<std::int64_t>& layers = problem_.layers.layers;
    const std::int64_t sum = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
    if (sum != problem_.model.layers) {
      problems_.add(
          fmt::format("pipeline.layers {} is {} layers; the model has {}: each belongs to one stage",
                      job::yaml_of(problem_.layers), sum, problem_.model.layers));
    }
    check_number();
  }

 private:
  void check_number() {
    const std::int64_t stages = listed_stages(problem_);
    if (problem_.list.schedule) {
      if (const std::int64_t listed = problem_.list.schedule->shape.stages(); listed != stages) {
        problems_.add(fmt::format("pipeline.layers lists {} stages; pipeline.schedule {} has {}", stages,
                                  problem_.list.file, listed));
      }
      return;
    }
    if (is_possible(stages)) return;
    if (held_.pp && held_.chunks) {
      problems_.add(
          fmt::format("pipeline.layers lists {} stages; mesh.pp_size {} x pipeline.chunks {} is {} stages",
                      stages, *held_.pp, *held_.chunks, *held_.pp * *held_.chunks));
      return;
    }
    problems_.add(
        fmt::format("pipeline.layers lists {} stages, which is no mesh.pp_size{} x pipeline.chunks{} on {} "
                    "devices with {}; "
                    "nearest: {}",
                    stages, held_.pp ? fmt::format(" {}", *held_.pp) : "",
                    held_.chunks ? fmt::format(" {}", *held_.chunks) : "", problem_.cluster.devices(),
                    held_.schedule ? fmt::format("pipeline.schedule {}", schedule::name_of(*held_.schedule))
                                   : fmt::format("a schedule of {}", problem_.profile.support.limits.name),
                    nearest(stages)));
  }

  bool is_possible(std::int64_t stages) const {
    for (const std::int64_t pp : held_.pp ? std::vector{*held_.pp} : divisors(problem_.cluster.devices())) {
      if (stages % pp == 0 && is_possible(pp, stages / pp)) return true;
    }
    return false;
  }

  bool is_possible(std::int64_t pp, std::int64_t chunks) const {
    if (held_.chunks.value_or(chunks) != chunks) return false;
    if (pp == 1) return chunks == 1;
    for (const schedule::Kind kind : problem_.profile.support.schedules) {
      const std::int64_t least = schedule::least_chunks(kind);
      const bool fits = kind == schedule::Kind::interleaved ? chunks >= least : chunks == least;
      if (fits && held_.schedule.value_or(kind) == kind) return true;
    }
    return false;
  }

  std::string nearest(std::int64_t stages) const {
    for (std::int64_t away = 1; away <= problem_.model.layers; ++away) {
      std::vector<std::int64_t> found;
      for (const std::int64_t other : {stages - away, stages + away}) {
        if (other > 0 && other <= problem_.model.layers && is_possible(other)) found.push_back(other);
      }
      if (!found.empty()) return fmt::format("{} stages", fmt::join(found, " or "));
    }
    return "pipeline.layers even";
  }

  const Problem& problem_;
  const Held& held_;
  Problems& problems_;
};

/// What a schedule that is a list wants.
class ListCheck {
 public:
  ListCheck(const Problem& problem, const Held& held, Problems& problems)
      : problem_(problem),
        held_(held),
        problems_(problems),
        name_("pipeline.schedule " + problem.list.file),
        shape_(problem.list.schedule->shape) {}

  void run() {
    if (!problem_.profile.support.schedule_files) {
      problems_.add(fmt::format("{}: {} reads no lists; allowed: {}, or plan.runtime ndmesh", name_,
                                problem_.profile.support.limits.name, join(supported_kinds())));
    }
    for (const std::string& defect : schedule::defects(*problem_.list.schedule)) {
      problems_.add(fmt::format("{}: {}", name_, defect));
    }
    check("ranks", shape_.ranks, "mesh.pp_size", held_.pp);
    check("chunks of each rank", shape_.chunks, "pipeline.chunks", held_.chunks);
    if (shape_.stages() > problem_.model.layers) {
      problems_.add(
          fmt::format("{} has {} stages; the model has {} layers; allowed: no more stages than layers", name_,
                      shape_.stages(), problem_.model.layers));
    }
    if (problem_.cluster.devices() % shape_.ranks != 0) {
      problems_.add(fmt::format("{} is for {} ranks, which do not divide the cluster's {} devices", name_,
                                shape_.ranks, problem_.cluster.devices()));
    }
    check_batch();
  }

 private:
  void check(std::string_view what, std::int64_t listed, std::string_view key,
             const std::optional<std::int64_t>& held) {
    if (held.value_or(listed) != listed) {
      problems_.add(
          fmt::format("{} is for {} {}; {} is {}; allowed: {}", name_, listed, what, key, *held, listed));
    }
  }

  std::vector<std::string> supported_kinds() const {
    std::vector<std::string> names;
    for (const schedule::Kind kind : problem_.profile.support.schedules) {
      names.emplace_back(schedule::name_of(kind));
    }
    return names;
  }

  /// batch.global = batch.micro x micro-batches x batch ranks.
  void check_batch() {
    const std::int64_t each = shape_.micro_batches * held_.micro.value_or(1) * held_.dp_shard.value_or(1) *
                              held_.dp_replicate.value_or(1);
    const std::int64_t batch = problem_.global_batch;
    const bool all_known = held_.micro && held_.dp_shard && held_.dp_replicate;
    if (all_known ? batch == each : batch % each == 0) return;
    const std::int64_t lower = batch / each * each;
    const std::string nearest =
        all_known || lower == 0 ? fmt::format("{}", each) : fmt::format("{} or {}", lower, lower + each);
    problems_.add(fmt::format(
        "{} has {} micro-batches; batch.global {} is not that many on each of the batch ranks{}; nearest: {}",
        name_, shape_.micro_batches, batch,
        held_.micro ? fmt::format(" with batch.micro {}", *held_.micro) : "", nearest));
  }

  const Problem& problem_;
  const Held& held_;
  Problems& problems_;
  std::string name_;
  const schedule::Shape& shape_;
};

}  // namespace

bool allows_stages(const Problem& problem, const Held& held, std::int64_t pp, std::int64_t chunks) {
  if (pp == 1 && held.pp == 1) return true;
  if (lists_layers(problem) && pp * chunks != listed_stages(problem)) return false;
  if (!problem.list.schedule) return true;
  const schedule::Shape& shape = problem.list.schedule->shape;
  return pp == shape.ranks && chunks == shape.chunks;
}

std::vector<std::string> pipeline_problems(const Problem& problem, const Held& held) {
  Problems problems;
  LayersCheck(problem, held, problems).run();
  if (problem.list.schedule && held.pp != 1) ListCheck(problem, held, problems).run();
  return problems.list();
}

}  // namespace ndmesh::plan
