#include <fmt/format.h>

#include "ndmesh/job/field_kinds.h"
#include "ndmesh/job/field_lists.h"
#include "ndmesh/job/names.h"
#include "ndmesh/schedule/schedule_file.h"

namespace ndmesh::job {
namespace {

using Policy = Recompute::Policy;

constexpr IntegerRange block_counts = {1, 100'000};
constexpr IntegerRange byte_counts = {0, INT64_MAX};
const char* const policies = "none, selective, full, {every: n}, {budget: bytes}";

Recompute recompute_of(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::map) {
    static const Choices<Policy> choices = {
        {"none", Policy::none}, {"selective", Policy::selective}, {"full", Policy::full}};
    return {.policy = chosen(node, choices, {}, policies)};
  }
  if (node.entries.size() == 1) {
    const auto& [name, value] = node.entries.front();
    if (name == "every") {
      return {.policy = Policy::every, .layers = integer_of(value, block_counts)};
    }
    if (name == "budget") {
      return {.policy = Policy::budget, .bytes = integer_of(value, byte_counts)};
    }
  }
  refuse(node, policies);
}

Field recompute_field() {
  return {
      "recompute.policy",
      "one of",
      policies,
      "What backward computes again instead of keeping it: selective, what is cheap for the bytes it frees; "
      "full, all but each block's input; every, full for every n-th block; budget, as many blocks as it "
      "takes to keep at most so many bytes of activations",
      [](const Job& job) { return yaml_of(job.recompute); },
      [](Job& job, const YamlNode& node) { job.recompute = recompute_of(node); }};
}

constexpr const char* units = "part, block, {blocks: n}";

std::int64_t unit_of(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::map) {
    static const Choices<std::int64_t> choices = {{"part", 0}, {"block", 1}};
    return chosen(node, choices, {}, units);
  }
  if (node.entries.size() == 1 && node.entries.front().first == "blocks") {
    return integer_of(node.entries.front().second, block_counts);
  }
  refuse(node, units);
}

std::string unit_name(std::int64_t blocks) {
  return blocks == 0 ? "part" : blocks == 1 ? "block" : fmt::format("{{blocks: {}}}", blocks);
}

Field unit_field() {
  return {"shard.unit",
          "one of",
          units,
          "What is gathered at a time: attention or feed-forward of a block, a block, or several",
          [](const Job& job) { return unit_name(job.shard.unit_blocks); },
          [](Job& job, const YamlNode& node) { job.shard.unit_blocks = unit_of(node); }};
}

std::vector<Field> sharding() {
  return {
      choice<std::int64_t>(
          "shard.zero", {{"0", 0}, {"1", 1}, {"2", 2}, {"3", 3}},
          "What dp_shard cuts: 0 nothing; 1 optimizer state; 2 gradients too; 3 parameters too",
          at(&Job::shard, &ShardSection::zero)),
      unit_field(),
      boolean("shard.reshard",
              "Give gathered parameters back after forward and gather them again for backward",
              at(&Job::shard, &ShardSection::reshard)),
      integer("shard.prefetch", {0, 1024}, "Units gathered ahead of the one that computes",
              at(&Job::shard, &ShardSection::prefetch)),
      integer("shard.gathered_limit", byte_counts,
              "Bytes of gathered parameters beyond which no unit is gathered ahead; 0: no limit",
              at(&Job::shard, &ShardSection::gathered_limit)),
      choice<Offload>(
          "shard.offload", choices_of({Offload::none, Offload::optimizer, Offload::all}),
          "What lives in host memory: optimizer state and its update, or parameters and gradients too",
          at(&Job::shard, &ShardSection::offload)),
  };
}

const char* const stage_cuts = "even, cost, memory, [n, n, ...]";

StageLayers stage_layers_of(const YamlNode& node) {
  using Cut = StageLayers::Policy;
  if (node.kind != YamlNode::Kind::list) {
    static const Choices<Cut> choices = {{"even", Cut::even}, {"cost", Cut::cost}, {"memory", Cut::memory}};
    return {chosen(node, choices, {}, stage_cuts), {}};
  }
  StageLayers given = {Cut::given, {}};
  for (const YamlNode& item : node.items) {
    given.layers.push_back(integer_of(item, {1, 100'000}));
  }
  return given;
}

Field stage_layers_field() {
  return {"pipeline.layers",
          "one of",
          stage_cuts,
          "Layers of each stage, in the order of the model: as many each; by cost, so that the slowest stage "
          "is as fast as it can be (the head counts); by memory, so that the fullest pipeline rank needs as "
          "little as it can; or as listed",
          [](const Job& job) { return yaml_of(job.pipeline.layers); },
          [](Job& job, const YamlNode& node) { job.pipeline.layers = stage_layers_of(node); }};
}

const char* const schedule_names = "gpipe, 1f1b, interleaved, zb-h1, zb-v, FILE.schedule";

void set_schedule(PipelineSection& pipeline, const YamlNode& node) {
  static const Choices<schedule::Kind> kinds =
      choices_of({schedule::Kind::gpipe, schedule::Kind::one_f_one_b, schedule::Kind::interleaved,
                  schedule::Kind::zb_h1, schedule::Kind::zb_v});
  pipeline.file.clear();
  pipeline.list.reset();
  if (node.kind == YamlNode::Kind::scalar && node.scalar.ends_with(schedule::file_ending)) {
    pipeline.file = node.scalar;
    pipeline.list = std::make_shared<const schedule::Schedule>(schedule::read_schedule(node.scalar));
    pipeline.schedule = pipeline.list->shape.kind;
  } else {
    pipeline.schedule = chosen(node, kinds, {}, schedule_names);
  }
}

Field schedule_field() {
  return {
      "pipeline.schedule",
      "one of",
      schedule_names,
      "Order of the micro-batches, or a file with the actions of every rank (docs/pipeline-parallelism.md); "
      "means nothing while mesh.pp_size is 1",
      [](const Job& job) {
        return yaml_of(job.pipeline.file.empty() ? std::string(name_of(job.pipeline.schedule))
                                                 : job.pipeline.file);
      },
      [](Job& job, const YamlNode& node) { set_schedule(job.pipeline, node); }};
}

std::vector<Field> axes() {
  return {
      boolean("tensor.sequence_parallel",
              "Cut the tokens of norms and residual sums over tp too; means nothing while mesh.tp_size is 1",
              at(&Job::tensor, &TensorSection::sequence_parallel)),
      schedule_field(),
      integer("pipeline.chunks", {0, 1024},
              "Model chunks of each pipeline rank: 2 or more with interleaved, 2 with zb-v, else 1; 0: the "
              "fewest that the schedule takes",
              at(&Job::pipeline, &PipelineSection::chunks)),
      stage_layers_field(),
      boolean(
          "pipeline.measure",
          "The cost by which pipeline.layers cost cuts is measured before the run starts; the job that is "
          "written has the stages",
          at(&Job::pipeline, &PipelineSection::measure)),
      choice<ContextKind>("context.kind",
                          choices_of({ContextKind::ring, ContextKind::allgather, ContextKind::alltoall,
                                      ContextKind::hierarchical}),
                          "How ranks exchange keys and values; means nothing while mesh.cp_size is 1",
                          at(&Job::context, &ContextSection::kind)),
      neutral("expert.placement", "folded", "Whether expert axes regroup the ranks of the dense axes",
              {"independent"}),
      number("expert.skew", {1, 1000},
             "Tokens of the busiest expert rank over the mean: what a plan counts with",
             at(&Job::expert, &ExpertSection::skew)),
  };
}

std::vector<Field> formats() {
  return {
      recompute_field(),
      boolean(
          "recompute.offload", "What forward keeps for backward waits in host memory",
          [](auto& job) -> auto& { return job.offload_activations; }),
      choice<DType>("precision.dtype",
                    {{"float32", DType::float32}, {"float64", DType::float64}, {"bfloat16", DType::bfloat16}},
                    "Format of compute; bfloat16 keeps master weights and reduces in float32",
                    [](auto& job) -> auto& { return job.dtype; }, {"float16"}),
      boolean("precision.fp8_products", "Linear layers compute in 8 bits",
              at(&Job::precision, &PrecisionSection::fp8_products)),
      boolean("precision.bf16_states", "The optimizer's moments are bfloat16",
              at(&Job::precision, &PrecisionSection::bf16_states)),
      integer("adapter.rank", {0, 65536}, "Rank of LoRA over a frozen base; 0 trains every parameter",
              at(&Job::adapter, &AdapterSection::rank)),
  };
}

}  // namespace

std::vector<Field> strategy_fields() {
  std::vector<Field> list = sharding();
  for (auto part : {axes, formats}) {
    std::vector<Field> more = part();
    std::move(more.begin(), more.end(), std::back_inserter(list));
  }
  return list;
}

}  // namespace ndmesh::job
