#include "ndmesh/job/job.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "ndmesh/base/error.h"
#include "ndmesh/base/yaml.h"
#include "ndmesh/model/config.h"
#include "support/mutations.h"

namespace ndmesh::job {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Job parse(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return parse_job(yaml, "runs/a.yaml", overrides);
}

std::vector<std::string> problems_of(const std::string& yaml,
                                     const std::vector<std::string>& overrides = {}) {
  try {
    parse(yaml, overrides);
  } catch (const RequestError& error) {
    return error.problems();
  }
  return {};
}

std::string problem_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const std::vector<std::string> problems = problems_of(yaml, overrides);
  return problems.size() == 1 ? problems.front() : std::to_string(problems.size()) + " problems";
}

const char* const full_job = R"(
model: {path: models/tiny}                   # a Hugging Face folder
data: {files: [text.u16], format: u16, shuffle: false}
batch: {global: 8, micro: 2, seq_len: 256}
mesh: {dp_shard_size: 2, tp_size: 2, pp_size: 1, cp_size: 1, dp_replicate_size: 1, ep_size: 1, etp_size: 1}
shard: {zero: 3, unit: block, reshard: true, prefetch: 1, offload: none}
recompute: {policy: none}
precision: {dtype: float64}
optimizer: {name: adamw, lr: 3e-4, betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.1}
lr_schedule: {name: constant}
train: {steps: 5, clip: 1.0}
pipeline: {schedule: 1f1b}
context: {kind: ring}
expert: {placement: folded}
tensor: {}
adapter:
run: {transport: threads, device: cpu, threads: 1, seed: 1}
cluster: 8xH100-SXM
plan: {task: train, headroom: 0.05}
)";

TEST(Job, ReadsEveryKey) {
  const Job job = parse(full_job);
  EXPECT_EQ(job.name, "a");
  EXPECT_EQ(job.model.path, "models/tiny");
  EXPECT_THAT(job.data.files, ElementsAre("text.u16"));
  EXPECT_EQ(job.data.format, DataFormat::u16);
  EXPECT_FALSE(job.data.shuffle);
  EXPECT_EQ(job.batch.global, 8);
  EXPECT_EQ(job.batch.micro, 2);
  EXPECT_EQ(job.mesh, (mesh::MeshSizes{.tp = 2, .dp_shard = 2}));
  EXPECT_EQ(job.shard.offload, Offload::none);
  EXPECT_EQ(job.dtype, DType::float64);
  EXPECT_EQ(job.optimizer.lr, 3e-4);
  EXPECT_EQ(job.optimizer.beta1, 0.9);
  EXPECT_EQ(job.optimizer.beta2, 0.95);
  EXPECT_EQ(job.optimizer.eps, 1e-8);
  EXPECT_EQ(job.train.steps, 5);
  EXPECT_EQ(job.run.threads, 1);
}

TEST(Job, KnowsWhatWasGivenAndWhatOnlyPlanningReads) {
  const Job job =
      parse("train: {steps: 5}\ncluster: {nodes: 2}\nplan: {task: train}\n", {"train.steps=6", "run.seed=3"});
  EXPECT_THAT(job.given, ElementsAre("train.steps", "cluster", "plan.task", "run.seed"));
  EXPECT_TRUE(job.is_given("run.seed"));
  EXPECT_FALSE(job.is_given("run"));
  EXPECT_THAT(keys_of_planning(job), ElementsAre(HasSubstr("cluster is read by planning only"),
                                                 HasSubstr("plan.task is read by planning only")));
  EXPECT_EQ(job.train.steps, 6);
}

TEST(Job, ReadsTheKeysOfPlanning) {
  const Job job = parse(R"(
shard: {zero: 2, offload: optimizer}
pipeline: {schedule: zb-v, chunks: 2}
context: {kind: alltoall}
expert: {skew: 1.5}
recompute: {policy: {every: 3}}
precision: {fp8_products: true, bf16_states: true}
adapter: {rank: 16}
optimizer: {name: muon}
mesh: {dp_shard_size: auto}
plan: {task: serve, runtime: megatron, headroom: 0.1, max_batch: 64, tokens_per_second: 1e6, tokens: 15e12, days: 54}
)");
  EXPECT_EQ(job.shard.zero, 2);
  EXPECT_EQ(job.shard.offload, Offload::optimizer);
  EXPECT_EQ(job.pipeline.schedule, schedule::Kind::zb_v);
  EXPECT_EQ(job.pipeline.chunks, 2);
  EXPECT_EQ(job.context.kind, ContextKind::alltoall);
  EXPECT_EQ(job.expert.skew, 1.5);
  EXPECT_EQ(job.recompute, (Recompute{.policy = Recompute::Policy::every, .layers = 3}));
  EXPECT_TRUE(job.precision.fp8_products);
  EXPECT_TRUE(job.precision.bf16_states);
  EXPECT_EQ(job.adapter.rank, 16);
  EXPECT_EQ(job.optimizer.name, OptimizerName::muon);
  EXPECT_TRUE(job.dp_shard_auto);
  EXPECT_EQ(job.mesh.dp_shard, 1);
  EXPECT_EQ(job.plan.task, PlanTask::serve);
  EXPECT_EQ(job.plan.runtime, "megatron");
  EXPECT_EQ(job.plan.headroom, 0.1);
  EXPECT_EQ(job.plan.max_batch, 64);
  EXPECT_EQ(job.plan.tokens, 15e12);
  EXPECT_EQ(job.plan.days, 54);
  EXPECT_EQ(resolved_yaml(parse(resolved_yaml(job))), resolved_yaml(job));
  EXPECT_EQ(parse("recompute: {policy: {budget: 1000000}}").recompute,
            (Recompute{.policy = Recompute::Policy::budget, .bytes = 1000000}));
  EXPECT_FALSE(parse("mesh: {dp_shard_size: auto}", {"mesh.dp_shard_size=4"}).dp_shard_auto);
}

TEST(Job, KeepsTheClusterAsItIsWritten) {
  EXPECT_EQ(parse("cluster: 8xH100-SXM").cluster, "8xH100-SXM");
  EXPECT_EQ(parse("cluster: {nodes: 64, node: 8xH100-SXM, nics: 8x400G, latency: -1e-6, x: [a b, ~, \"2\"]}")
                .cluster,
            "{nodes: 64, node: 8xH100-SXM, nics: 8x400G, latency: -1e-6, x: [\"a b\", ~, \"2\"]}");
  EXPECT_EQ(parse("cluster:\n  nodes: 2\n  node:\n    device: H100-SXM\n").cluster,
            "{nodes: 2, node: {device: H100-SXM}}");
  EXPECT_EQ(parse("", {"cluster=my cluster.yaml"}).cluster, "\"my cluster.yaml\"");
  EXPECT_EQ(parse("cluster: ").cluster, "");
  EXPECT_EQ(
      parse("cluster: {nodes: 64, node: 8xH100-SXM}", {"cluster.nodes=2", "cluster.nics=8x400G"}).cluster,
      "{nodes: 2, node: 8xH100-SXM, nics: 8x400G}");
  EXPECT_EQ(parse("cluster: \"\"", {"cluster.node=8xH100-SXM"}).cluster, "{node: 8xH100-SXM}");
  const Job job = parse("cluster: {nodes: 64, node: {device: H100-SXM, links: [1, \"1\"]}}");
  EXPECT_EQ(parse(resolved_yaml(job)).cluster, job.cluster);
}

TEST(Job, AnEmptyFileIsAllDefaults) {
  EXPECT_EQ(resolved_yaml(parse("")), resolved_yaml(Job{}));
  EXPECT_EQ(resolved_yaml(parse("# nothing\n")), resolved_yaml(Job{}));
  EXPECT_EQ(parse("").batch.global, 8);
  EXPECT_TRUE(parse("").given.empty());
}

TEST(Job, OverridesLieOverTheFile) {
  const Job job = parse(full_job, {"mesh.tp_size=1", "optimizer.betas=[0.8, 0.99]", "data.files=[a, b]",
                                   "precision.dtype=bfloat16", "model.path=\"\"", "model.preset=llama-1m"});
  EXPECT_EQ(job.mesh.tp, 1);
  EXPECT_EQ(job.optimizer.beta1, 0.8);
  EXPECT_THAT(job.data.files, ElementsAre("a", "b"));
  EXPECT_EQ(job.dtype, DType::bfloat16);
}

TEST(Job, ResolvedJobIsReadBackToTheSame) {
  Job job = parse(full_job);
  job.model.path = "a folder: \"with\" # odd \\ characters\n";
  job.data.files = {"true", "12", "- a", "", "[x]", "\xc3\xa9"};
  job.optimizer.lr = 1.0 / 3;
  job.mesh_order = {mesh::Axis::pp, mesh::Axis::tp, mesh::Axis::cp, mesh::Axis::dp_shard,
                    mesh::Axis::dp_replicate};
  job.pipeline.schedule = schedule::Kind::zb_v;
  const std::string text = resolved_yaml(job);
  const Job again = parse(text);
  EXPECT_EQ(again.model.path, job.model.path);
  EXPECT_EQ(again.data.files, job.data.files);
  EXPECT_EQ(again.optimizer.lr, job.optimizer.lr);
  EXPECT_EQ(again.mesh_order, job.mesh_order);
  EXPECT_EQ(resolved_yaml(again), text);
  EXPECT_EQ(again.given.size(), all_keys().size());
}

TEST(Job, UnknownKeysAreRefusedWithTheNearest) {
  EXPECT_THAT(problem_of("mesh: {tp_sise: 2}"),
              HasSubstr("line 1: unknown key \"mesh.tp_sise\"; did you mean mesh.tp_size?"));
  EXPECT_THAT(problem_of("mesh: {tp: 2}"), HasSubstr("did you mean mesh.tp_size?"));
  EXPECT_THAT(problem_of("train: {lr: 0.1}"), HasSubstr("did you mean optimizer.lr?"));
  EXPECT_THAT(problem_of("mehs: {tp_size: 2}"), HasSubstr("unknown section \"mehs\"; did you mean mesh?"));
  EXPECT_THAT(problem_of("mesh.tp_size: 2"), HasSubstr("write mesh: {tp_size: ...}"));
  EXPECT_THAT(problem_of("", {"mesh.tp_sise=2"}), HasSubstr("did you mean mesh.tp_size?"));
  EXPECT_THAT(problem_of("tensor: {sequence_paralel: true}"),
              HasSubstr("did you mean tensor.sequence_parallel?"));
  EXPECT_THAT(problem_of("adapter: {kind: lora}"), HasSubstr("unknown key \"adapter.kind\""));
}

TEST(Job, PartsThatAreNotBuiltAreRefusedByName) {
  for (const auto& [yaml, what] : std::vector<std::pair<std::string, std::string>>{
           {"shard: {unit: half}", "shard.unit is \"half\"; allowed: part, block, {blocks: n}"},
           {"run: {transport: mpi}", "run.transport mpi is not built yet; allowed: threads"},
           {"run: {transport: nccl}", "nccl is not built yet"},
           {"run: {transport: meta}", "meta is not built yet"},
           {"run: {device: cuda}", "run.device cuda is not built yet; allowed: cpu"},
           {"optimizer: {name: lion}", "optimizer.name lion is not built yet; allowed: adamw, sgd, muon"},
           {"data: {format: jsonl}", "data.format jsonl is not built yet; allowed: text, u16, bin"},
           {"data: {format: megatron}", "megatron is not built yet"},
           {"expert: {placement: independent}", "independent is not built yet; allowed: folded"},
           {"precision: {dtype: float16}", "float16 is not built yet"}}) {
    EXPECT_THAT(problem_of(yaml), HasSubstr(what)) << yaml;
  }
}

TEST(Job, WrongTypesAndRangesAreRefused) {
  for (const auto& [yaml, what] : std::vector<std::pair<std::string, std::string>>{
           {"batch: {global: 0}", "batch.global is \"0\"; allowed: an integer, 1 to"},
           {"batch: {global: -4}", "is \"-4\""},
           {"batch: {global: 4.5}", "is \"4.5\""},
           {"batch: {global: 1e3}", "is \"1e3\""},
           {"batch: {global: 9223372036854775808}", "is \"9223372036854775808\""},
           {"batch: {global: 99999999999999999999999}", "is \"99999999999999999999999\""},
           {"batch: {global: \"8\"}", "is \"8\"; allowed: an integer"},
           {"batch: {global: 0x10}", "is \"0x10\""},
           {"batch: {global: eight}", "is \"eight\""},
           {"batch: {global: }", "is nothing"},
           {"batch: {global: ~}", "is nothing"},
           {"batch: {global: [8]}", "is a list"},
           {"batch: {global: {a: 8}}", "is a mapping"},
           {"mesh: {tp_size: auto}", "is \"auto\"; allowed: an integer"},
           {"mesh: {dp_shard_size: all}", "is \"all\"; allowed: an integer"},
           {"shard: {zero: 4}", "shard.zero is \"4\"; allowed: 0, 1, 2, 3"},
           {"recompute: {policy: all}",
            "is \"all\"; allowed: none, selective, full, {every: n}, {budget: bytes}"},
           {"recompute: {policy: every}", "allowed: none, selective, full, {every: n}"},
           {"recompute: {policy: {every: 0}}", "recompute.policy is \"0\"; allowed: an integer, 1 to"},
           {"recompute: {policy: {budget: -1}}", "is \"-1\""},
           {"recompute: {policy: {every: 2, budget: 3}}", "is a mapping"},
           {"recompute: {policy: {often: 2}}", "is a mapping"},
           {"recompute: {policy: [full]}", "is a list"},
           {"cluster: [8xH100-SXM]", "cluster is a list; allowed: a text or a mapping"},
           {"plan: {task: dream}", "allowed: train, serve"},
           {"plan: {runtime: megatorn}", "did you mean megatron?"},
           {"plan: {headroom: 0.95}", "0 to 0.9"},
           {"plan: {speed: 2}", "unknown key \"plan.speed\""},
           {"expert: {skew: 0.5}", "1 to 1000"},
           {"optimizer: {lr: .nan}", "is \".nan\"; allowed: a number"},
           {"optimizer: {lr: nan}", "is \"nan\""},
           {"optimizer: {lr: inf}", "is \"inf\""},
           {"optimizer: {lr: 1e999}", "is \"1e999\""},
           {"optimizer: {lr: -1}", "is \"-1\""},
           {"optimizer: {eps: 0}", "is \"0\"; allowed: a number, above 0"},
           {"optimizer: {betas: [0.9]}", "is a list; allowed: a list of 2 numbers"},
           {"optimizer: {betas: [0.9, 1.0]}", "optimizer.betas is \"1.0\""},
           {"optimizer: {betas: 0.9}", "allowed: a list of 2 numbers"},
           {"data: {shuffle: yes}", "is \"yes\"; allowed: true, false"},
           {"data: {files: {a: b}}", "is a mapping; allowed: a list of texts"},
           {"data: {files: [[a]]}", "is a list; allowed: a text"},
           {"model: {path: [a]}", "allowed: a text"},
           {"model: {preset: llama-28n}", "did you mean llama-28m?"},
           {"precision: {dtype: float33}", "did you mean float32?"},
           {"pipeline: {schedule: 2f2b}", "allowed: gpipe, 1f1b, interleaved, zb-h1, zb-v"},
           {"lr_schedule: {final_ratio: 1.5}", "allowed: a number, 0 to 1"},
           {"mesh: {order: [tp, tp]}", "problems"},
           {"mesh: {order: [tp, cp, dp_shard, dp_replicate, qq]}", "problems"},
           {"run: {step_limit: 0}", "above 0"},
           {"mesh: 4", "mesh is \"4\"; allowed: a mapping of keys"},
           {"mesh: [4]", "mesh is a list"}}) {
    EXPECT_THAT(problem_of(yaml), HasSubstr(what)) << yaml;
  }
}

TEST(Job, AllProblemsComeAtOnce) {
  const auto problems = problems_of("batch: {global: 0, mikro: 1}\nrun: {device: cuda}\nfoo: 1\n",
                                    {"mesh.tp_size=x", "nodot=1", "mesh.q"});
  EXPECT_EQ(problems.size(), 7U);
  EXPECT_THAT(problems_of("model: {path: a, preset: llama-1m}"), ElementsAre(HasSubstr("both given")));
  EXPECT_THAT(problems_of("model: {preset: llama-1m, size: 7B}"),
              ElementsAre(HasSubstr("model.preset and model.size are both given")));
  EXPECT_THAT(problems_of("model: {size: big}"), ElementsAre(HasSubstr("1M to 1000T")));
}

TEST(Job, OverridesMustNameAKeyOnce) {
  EXPECT_THAT(problem_of("", {"steps=5"}), HasSubstr("allowed: SECTION.KEY=VALUE"));
  EXPECT_THAT(problem_of("", {"train.steps"}), HasSubstr("allowed: SECTION.KEY=VALUE"));
  EXPECT_THAT(problem_of("", {"train.steps=5", "train.steps=6"}), HasSubstr("overridden twice"));
  EXPECT_THAT(problem_of("", {"train.steps={a"}), HasSubstr("not valid YAML"));
  EXPECT_THAT(problem_of("cluster: 8xH100-SXM", {"cluster.nodes=2"}),
              HasSubstr("cluster.nodes: cluster is \"8xH100-SXM\", not a mapping"));
}

TEST(Yaml, RefusesHostileDocuments) {
  for (const auto& [yaml, what] : std::vector<std::pair<std::string, std::string>>{
           {"batch: {global: 8, global: 9}", "the key \"global\" is given twice"},
           {"batch: {global: 8}\nbatch: {micro: 9}", "line 2: the key \"batch\" is given twice"},
           {"a: &x 1\nb: *x", "is not read"},
           {"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]", "not read"},
           {"<<: {a: 1}", "unknown section"},
           {"a: !!python/object:os.system 1", "the tag"},
           {"a: !local 1", "the tag"},
           {"a: 1\n---\nb: 2", "more than one YAML document"},
           {"? [a, b]\n: 1", "a key is a list"},
           {"? \n: 1", "a key is nothing"},
           {"[1, 2]", "allowed: a mapping of sections"},
           {"just text", "allowed: a mapping of sections"},
           {"a: [1, 2", "is not valid YAML"},
           {"a: b: c", "is not valid YAML"},
           {"\t- x", "valid YAML"},
           {"a: 'x", "is not valid YAML"},
           {std::string("a: \0", 4), ""}}) {
    EXPECT_THAT(problem_of(yaml), HasSubstr(what)) << yaml;
  }
}

TEST(Yaml, DeepNestingIsRefusedBeforeTheStackEnds) {
  const std::string deep(100000, '[');
  EXPECT_THAT(problem_of(deep), HasSubstr("nested deeper than 8 levels"));
  std::string maps;
  std::string dashes;
  for (int i = 0; i < 20000; ++i) {
    maps += "{a: ";
    dashes += "- ";
  }
  EXPECT_THAT(problem_of(maps), HasSubstr("nested deeper than 8 levels"));
  EXPECT_THAT(problem_of(dashes), HasSubstr("nested deeper than 8 levels"));
}

// Nearly right input ends in a job or a RequestError, never in anything else; what is accepted is written and
// read back.
TEST(Job, MutationsAreReadOrRefused) {
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    const std::string text = testing_support::mutated(full_job, seed);
    try {
      const std::string resolved = resolved_yaml(parse(text));
      EXPECT_EQ(resolved_yaml(parse(resolved)), resolved) << text;
      ++accepted;
    } catch (const RequestError&) {
    }
  }
  EXPECT_GT(accepted, 50);
  EXPECT_LT(accepted, 4000);
}

TEST(Help, KnowsKeysAndSections) {
  ASSERT_EQ(help_for("mesh.tp_size").size(), 1U);
  EXPECT_EQ(help_for("mesh.tp_size").front().initial, "1");
  EXPECT_EQ(help_for("mesh").size(), 8U);
  EXPECT_EQ(help_for("optimizer.betas").front().initial, "[0.9, 0.95]");
  EXPECT_EQ(help_for("tensor").size(), 1U);
  try {
    help_for("mesh.tp_sise");
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean mesh.tp_size?"));
  }
  for (const KeyHelp& key : all_keys()) {
    EXPECT_FALSE(key.help.empty()) << key.key;
    EXPECT_FALSE(key.range.empty()) << key.key;
  }
}

TEST(Help, ReferencePageIsFresh) {
  std::ifstream file(NDMESH_TEST_DATA "/../../docs/job-reference.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_TRUE(page.str() == reference_page())
      << "write it anew: ndmesh help --reference > docs/job-reference.md";
}

TEST(Job, FilesAreRead) {
  const std::string path = testing::TempDir() + "ndmesh_job_test.yaml";
  std::ofstream(path) << "train: {steps: 7}\n";
  EXPECT_EQ(read_job(path, {}).train.steps, 7);
  EXPECT_EQ(read_job(path, {}).name, "ndmesh_job_test");
  EXPECT_THROW(read_job("no/such/job.yaml", {}), RequestError);
  EXPECT_THROW(read_job(testing::TempDir(), {}), RequestError);
}

}  // namespace
}  // namespace ndmesh::job
