#include "ndmesh/plan/search/search.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "ndmesh/base/error.h"
#include "ndmesh/model/config.h"
#include "ndmesh/plan/search/mesh_judge.h"
#include "ndmesh/plan/search/space.h"
#include "ndmesh/schedule/schedule_file.h"

namespace ndmesh::plan {
namespace {

using testing::HasSubstr;

Problem problem_of(const std::string& preset, const std::string& cluster, std::int64_t batch) {
  Problem problem;
  problem.model = model::preset(preset);
  problem.cluster = cluster::parse_cluster(cluster, "test");
  problem.profile = profile("ndmesh");
  problem.seq_len = 2048;
  problem.global_batch = batch;
  return problem;
}

Constants constants(const Problem& problem) {
  return constants_for(problem.cluster, problem.profile.name);
}

/// The slow way: every combination of numbers is asked of the rules, and every legal one is simulated.
class BruteForce {
 public:
  BruteForce(const Problem& problem, bool offload_activations)
      : problem_(problem), offload_activations_(offload_activations), judge_(problem, constants(problem)) {}

  std::int64_t legal = 0;
  std::int64_t all = 0;

  /// The best plan of each mesh, ranked.
  std::vector<Plan> run() {
    const std::int64_t devices = problem_.cluster.devices();
    for (std::int64_t tp = 1; tp <= devices; ++tp)
      for (std::int64_t cp = 1; cp <= devices / tp; ++cp)
        for (std::int64_t pp = 1; pp <= devices / tp / cp; ++pp)
          for (std::int64_t shard = 1; shard <= devices / tp / cp / pp; ++shard)
            if (devices % (tp * cp * pp * shard) == 0)
              visit_experts({.tp = tp,
                             .cp = cp,
                             .dp_shard = shard,
                             .dp_replicate = devices / tp / cp / pp / shard,
                             .pp = pp});
    std::vector<Plan> plans;
    for (auto& [name, plan] : best_) plans.push_back(plan);
    std::sort(plans.begin(), plans.end(), is_better);
    return plans;
  }

 private:
  void visit_experts(mesh::MeshSizes sizes) {
    visit_mesh(sizes);
    if (!problem_.model.experts) return;
    for (std::int64_t ep = 1; ep <= problem_.model.experts->count; ++ep) {
      for (const std::int64_t etp : {std::int64_t{1}, sizes.tp}) {
        if (problem_.model.experts->count % ep != 0 || ep * etp == 1) continue;
        sizes.ep = ep;
        sizes.etp = etp;
        visit_mesh(sizes);
        if (sizes.tp == 1) break;
      }
    }
  }

  void visit_mesh(const mesh::MeshSizes& sizes) {
    Candidate c;
    c.mesh = sizes;
    c.offload_activations = offload_activations_;
    for (std::int64_t micro = 1; micro <= problem_.global_batch; ++micro) {
      if (problem_.global_batch % micro != 0) continue;
      c.micro = micro;
      for (std::int64_t zero = 0; zero <= (sizes.cp * sizes.dp_shard > 1 ? 3 : 0); ++zero) {
        c.zero = zero;
        for (const bool reshard : {true, false}) {
          c.reshard = reshard;
          if (reshard || zero == 3) visit_schedules(c);
        }
      }
    }
  }

  void visit_schedules(Candidate c) {
    using schedule::Kind;
    if (c.mesh.pp == 1) return visit_recompute(c);
    if (problem_.list.schedule) {
      c.schedule = problem_.list.schedule->shape.kind;
      c.chunks = problem_.list.schedule->shape.chunks;
      return visit_recompute(c);
    }
    for (const Kind kind : {Kind::gpipe, Kind::one_f_one_b, Kind::zb_h1, Kind::zb_v, Kind::interleaved}) {
      c.schedule = kind;
      for (c.chunks = 1; c.chunks <= 8; ++c.chunks) {
        const bool makes_sense =
            kind == Kind::interleaved ? c.chunks > 1 : c.chunks == (kind == Kind::zb_v ? 2 : 1);
        if (makes_sense) visit_recompute(c);
      }
    }
  }

  void visit_recompute(Candidate c) {
    using Policy = job::Recompute::Policy;
    for (const job::Recompute& recompute : {job::Recompute{},
                                            {.policy = Policy::selective},
                                            {.policy = Policy::full},
                                            {Policy::every, 4},
                                            {Policy::every, 2}}) {
      c.recompute = recompute;
      visit_orders(c);
    }
  }

  /// Orders that put the ranks of the used axes elsewhere.
  void visit_orders(Candidate c) {
    using mesh::Axis;
    std::vector<std::vector<Axis>> seen;
    for (const mesh::AxisOrder& order :
         {mesh::default_order,
          mesh::AxisOrder{Axis::tp, Axis::cp, Axis::pp, Axis::dp_shard, Axis::dp_replicate},
          mesh::AxisOrder{Axis::tp, Axis::dp_shard, Axis::cp, Axis::dp_replicate, Axis::pp},
          mesh::AxisOrder{Axis::tp, Axis::cp, Axis::dp_shard, Axis::pp, Axis::dp_replicate}}) {
      std::vector<Axis> used;
      for (const Axis axis : order)
        if (c.mesh.size(axis) > 1) used.push_back(axis);
      if (std::find(seen.begin(), seen.end(), used) != seen.end()) continue;
      seen.push_back(used);
      c.order = order;
      judge(c);
    }
  }

  bool has_schedule(const Candidate& c) const {
    const schedule::Shape shape = schedule_shape(problem_, c);
    if (problem_.layers.policy == job::StageLayers::Policy::given &&
        shape.stages() != static_cast<std::int64_t>(problem_.layers.layers.size()))
      return false;
    return problem_.list.schedule ? shape == problem_.list.schedule->shape
                                  : schedule::problems_of(shape).empty();
  }

  void judge(const Candidate& c) {
    ++all;
    mesh::RuleInput input = rule_input(problem_, c.mesh);
    input.micro_batch = c.micro;
    input.zero = c.zero;
    input.chunks = c.chunks;
    if (!mesh::broken_rules(input).empty() || !has_schedule(c)) return;
    ++legal;
    Plan plan = judge_.judge(c);
    EXPECT_LE(judge_.memory().least_bytes(c), plan.worst.reserved);
    EXPECT_LE(judge_.time().least_seconds(c), plan.time.seconds);
    Candidate loosest = c;
    loosest.order = mesh::default_order;
    loosest.zero = 3;
    loosest.reshard = false;
    loosest.mesh.dp_shard *= loosest.mesh.dp_replicate;
    loosest.mesh.dp_replicate = 1;
    const double bound = judge_.time().least_compute_seconds(loosest);
    EXPECT_LE(bound, judge_.time().least_seconds(c));
    loosest.recompute = {};
    if (!offload_activations_) {
      EXPECT_LE(judge_.time().least_compute_seconds(loosest), bound);
    }
    const auto [place, is_new] = best_.try_emplace(c.mesh.name(), plan);
    if (!is_new && is_better(plan, place->second)) place->second = plan;
  }

  const Problem& problem_;
  bool offload_activations_;
  Judge judge_;
  std::map<std::string, Plan> best_;
};

void expect_same(const Problem& problem, bool offload_activations = false) {
  BruteForce slow(problem, offload_activations);
  const std::vector<Plan> expected = slow.run();
  Held held;
  held.offload_activations = offload_activations;
  const SearchResult found = search(problem, constants(problem), held, 1000);
  EXPECT_EQ(found.legal, slow.legal);
  EXPECT_EQ(found.judged, slow.all);
  EXPECT_LE(found.simulated, found.legal);
  ASSERT_EQ(found.plans.size(), expected.size());
  const Space space(problem, held);
  const MeshJudge judge(problem, constants(problem));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found.plans[i].fits, expected[i].fits) << i;
    EXPECT_LE(judge.least_seconds(space.options(expected[i].candidate.mesh)), expected[i].time.seconds) << i;
    if (expected[i].fits) {
      EXPECT_EQ(found.plans[i].time.seconds, expected[i].time.seconds)
          << i << ": " << expected[i].candidate.mesh.name();
    } else {
      EXPECT_EQ(found.plans[i].worst.reserved, expected[i].worst.reserved) << i;
    }
  }
  const SearchResult few = search(problem, constants(problem), held, 3);
  EXPECT_EQ(few.legal, slow.legal);
  for (std::size_t i = 0; i < few.plans.size(); ++i) {
    EXPECT_EQ(few.plans[i].candidate, found.plans[i].candidate) << i;
  }
}

TEST(Search, FindsWhatSimulatingEverythingFinds) {
  expect_same(problem_of("llama-1b", "4xA100-SXM", 8));
}

TEST(Search, FindsTheSameWhereMemoryIsShort) {
  Problem problem = problem_of("llama-1b", "4xA100-SXM", 4);
  problem.cluster.usable_bytes = std::int64_t{9} << 30;
  expect_same(problem);
}

TEST(Search, FindsTheSameForExperts) {
  Problem problem = problem_of("mixtral-8x7b", "2xH200-SXM", 2);
  problem.model.layers = 4;
  problem.model.experts->layers.clear();
  expect_same(problem);
}

std::vector<std::string> refusals(const Problem& problem, const Held& held) {
  try {
    search(problem, constants(problem), held, 1);
  } catch (const RequestError& error) {
    return error.problems();
  }
  return {};
}

void expect_same_with(const job::StageLayers& layers) {
  Problem problem = problem_of("llama-1b", "4xA100-SXM", 4);
  problem.layers = layers;
  expect_same(problem);
  problem.cluster.usable_bytes = std::int64_t{9} << 30;
  expect_same(problem);
}

TEST(Search, FindsTheSameForStagesByCostOrAsGiven) {
  expect_same_with({job::StageLayers::Policy::cost, {}});
  expect_same_with({job::StageLayers::Policy::given, {8, 6, 6, 2}});
}

TEST(SlowSearch, FindsTheSameForStagesByMemory) {
  expect_same_with({job::StageLayers::Policy::memory, {}});
}

TEST(Search, FindsTheSameForAListOfActions) {
  Problem problem = problem_of("llama-1b", "4xA100-SXM", 4);
  job::PipelineSection pipeline;
  pipeline.file = "a.schedule";
  pipeline.list = std::make_shared<const schedule::Schedule>(schedule::parse_schedule(
      "v\nF0.0 F0.1 F1.0 B1.0 F1.1 I1.1 B0.0 W1.1 B0.1\nF0.0 F1.0 F0.1 F1.1 B1.0 I0.0 B1.1 W0.0 B0.1\n",
      "a"));
  problem.list = pipeline_list(pipeline);
  expect_same(problem);
}

TEST(Search, RefusesListsOfLayersThatNoPipelineHas) {
  Problem problem = problem_of("llama-1b", "8xH100-SXM", 16);
  problem.layers = {job::StageLayers::Policy::given, {6, 5, 4}};
  EXPECT_THAT(
      refusals(problem, {}),
      testing::ElementsAre(
          "pipeline.layers [6, 5, 4] is 15 layers; the model has 22: each belongs to one stage",
          "pipeline.layers lists 3 stages, which is no mesh.pp_size x pipeline.chunks on 8 devices with a "
          "schedule of ndmesh; nearest: 2 or 4 stages"));
  problem.layers.layers = {8, 8, 6};
  Held held;
  held.pp = 4;
  held.chunks = 1;
  EXPECT_THAT(
      refusals(problem, held),
      testing::ElementsAre("pipeline.layers lists 3 stages; mesh.pp_size 4 x pipeline.chunks 1 is 4 stages"));
  held.pp = 1;  // where a list means nothing
  EXPECT_THAT(refusals(problem, held), testing::IsEmpty());
}

// A slow link makes full recomputation, which sends less, faster than none: no bound may pass it over.
TEST(Search, FindsTheSameWhereActivationsAreOffloaded) {
  Problem problem = problem_of("llama-1b", "4xA100-SXM", 4);
  for (const double bandwidth : {25e9, 1e9}) {
    problem.cluster.device.host_bandwidth = bandwidth;
    expect_same(problem, true);
  }
  problem.cluster.host_memory_bytes = std::int64_t{24} << 30;  // of the node: some plans keep more
  expect_same(problem, true);
}

TEST(SlowSearch, FindsTheSameOnEightDevices) {
  Problem problem = problem_of("llama-3-8b", "8xH100-SXM", 16);
  expect_same(problem);
  problem.profile = profile("megatron");
  SearchResult found = search(problem, constants(problem), {}, 1000);
  for (const Plan& plan : found.plans) EXPECT_LE(plan.candidate.mesh.pp > 1 ? plan.candidate.zero : 0, 1);
}

/// Room, bandwidth and freedom never cost time; holding the best's own keys changes nothing.
TEST(Search, MoreOfAnythingIsNeverSlower) {
  Problem problem = problem_of("llama-1b", "2x4xA100-SXM-40GB", 16);
  const auto seconds = [&](const Held& held = {}) {
    const Plan best = search(problem, constants(problem), held, 1).plans.front();
    return best.fits ? best.time.seconds : 1e30;
  };
  double before = 1e31;
  for (const std::int64_t gib : {1, 6, 8, 10, 12, 16, 24, 40}) {
    problem.cluster.usable_bytes = gib << 30;
    EXPECT_LE(seconds(), before) << gib << " GiB";
    before = seconds();
  }
  EXPECT_LT(before, 1e30);
  for (const double headroom : {0.9, 0.7, 0.3}) {
    problem.headroom = headroom;
    EXPECT_GE(seconds(), before) << headroom;
  }
  problem.headroom = 0;
  before = seconds();
  Held held;
  for (const std::int64_t tp : {1, 2, 4}) {
    held.tp = tp;
    EXPECT_GE(seconds(held), before) << "tp " << tp;
  }
  const Candidate best = search(problem, constants(problem), {}, 1).plans.front().candidate;
  held = {};
  for (const mesh::Axis axis : mesh::all_axes) held.size(axis) = best.mesh.size(axis);
  held.micro = best.micro;
  held.zero = best.zero;
  held.recompute = best.recompute;
  EXPECT_EQ(seconds(held), before);
  for (const double factor : {0.1, 0.5, 4.0}) {
    Problem other = problem;
    for (cluster::Level& level : other.cluster.levels) level.bandwidth *= factor;
    const double changed = search(other, constants(other), {}, 1).plans.front().time.seconds;
    EXPECT_TRUE(factor < 1 ? changed >= before : changed <= before) << factor;
  }
}

TEST(Search, HoldsWhatIsGiven) {
  const Problem problem = problem_of("llama-1b", "8xH100-SXM", 16);
  Held held;
  held.tp = 2;
  held.micro = 2;
  held.zero = 1;
  held.schedule = schedule::Kind::gpipe;
  held.recompute = job::Recompute{.policy = job::Recompute::Policy::full};
  held.order = mesh::default_order;
  held.offload = job::Offload::optimizer;
  held.offload_activations = true;
  const SearchResult found = search(problem, constants(problem), held, 100);
  ASSERT_FALSE(found.plans.empty());
  for (const Plan& plan : found.plans) {
    const Candidate& c = plan.candidate;
    EXPECT_EQ(c.mesh.tp, 2);
    EXPECT_EQ(c.mesh.world(), 8);
    EXPECT_EQ(c.micro, 2);
    EXPECT_EQ(c.zero, 1);
    EXPECT_EQ(c.recompute, *held.recompute);
    EXPECT_EQ(c.order, mesh::default_order);
    EXPECT_EQ(c.offload, job::Offload::optimizer);
    EXPECT_TRUE(c.offload_activations);
    EXPECT_TRUE(c.mesh.pp == 1 || c.schedule == schedule::Kind::gpipe);
  }
}

TEST(Search, RefusesEveryRuleThatIsBrokenByWhatIsHeld) {
  const Problem problem = problem_of("llama-3-8b", "8xH100-SXM", 6);
  Held held;
  held.tp = 3;
  held.pp = 64;
  held.dp_shard = 4;
  EXPECT_THAT(refusals(problem, held),
              testing::UnorderedElementsAre(HasSubstr("mesh.tp_size: 3 does not divide the 32 query heads"),
                                            HasSubstr("mesh.tp_size: 3 neither divides the 8 KV heads"),
                                            HasSubstr("mesh.pp_size: 64 stages for 32 layers"),
                                            HasSubstr("batch.seq_len: 2048 is not a multiple of 3"),
                                            HasSubstr("batch.global: 6 is not a multiple of 4"),
                                            HasSubstr("768 ranks at a time, which do not divide")));
}

// dp must be 23: the batch is never altered.
TEST(Search, RefusesABatchThatNoMeshDivides) {
  Problem problem = problem_of("llama-3-8b", "184x8xH100-SXM", 32);
  Held held;
  held.tp = 8;
  held.pp = 8;
  held.micro = 1;
  held.cp = 1;
  const auto problems = refusals(problem, held);
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_THAT(problems[0], HasSubstr("no mesh of 1472 ranks is legal"));
  EXPECT_THAT(problems[1], HasSubstr("32 is not a multiple of 23"));
  EXPECT_THAT(problems[1], HasSubstr("nearest: 23 or 46"));
}

TEST(Search, RefusesWhatTheRuntimeHasNot) {
  Problem problem = problem_of("llama-3-8b", "8xH100-SXM", 16);
  problem.profile = profile("accelerate");
  problem.context = job::ContextKind::hierarchical;
  problem.precision.fp8_products = true;
  Held held;
  held.pp = 2;
  held.cp = 2;
  held.schedule = schedule::Kind::zb_v;
  held.recompute = job::Recompute{.policy = job::Recompute::Policy::selective};
  held.offload = job::Offload::optimizer;
  EXPECT_THAT(refusals(problem, held),
              testing::UnorderedElementsAre(
                  "mesh.pp_size: 2, but accelerate has no pipeline stages; allowed: 1",
                  HasSubstr("pipeline.schedule: zb-v is nothing that accelerate has"),
                  "recompute.policy: selective is nothing that accelerate has; allowed: none, full",
                  "shard.offload: optimizer is nothing that accelerate has; allowed: none, all",
                  "context.kind: hierarchical is nothing that accelerate has; allowed: allgather, ring"));
  problem.profile = profile("deepspeed");
  problem.context = job::ContextKind::alltoall;
  held = {};
  held.pp = 2;
  held.zero = 3;
  held.reshard = false;
  problem.adapter.rank = 8;
  EXPECT_THAT(refusals(problem, held),
              testing::UnorderedElementsAre(
                  "shard.zero: 3 with mesh.pp_size 2, but with pipeline stages deepspeed has at most 1",
                  "shard.reshard: false, but deepspeed always frees gathered parameters; allowed: true",
                  "precision.fp8_products: true, but deepspeed has none; allowed: false"));
  problem.profile = profile("torchtitan");
  problem.precision.fp8_products = false;
  problem.context = job::ContextKind::ring;
  EXPECT_THAT(refusals(problem, {}),
              testing::ElementsAre("adapter.rank: 8, but torchtitan has no adapters; allowed: 0"));
}

TEST(Search, RefusesSchedulesThatAreNone) {
  const Problem problem = problem_of("llama-3-8b", "8xH100-SXM", 22);
  Held held;
  held.pp = 4;
  held.dp_shard = 2;
  held.dp_replicate = 1;
  held.micro = 1;
  held.schedule = schedule::Kind::interleaved;
  held.chunks = 1;
  EXPECT_THAT(refusals(problem, held),
              testing::ElementsAre(HasSubstr("pipeline.chunks: 1"),
                                   HasSubstr("11 micro-batches cannot be dealt out")));
}

}  // namespace
}  // namespace ndmesh::plan
