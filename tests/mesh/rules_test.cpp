#include "ndmesh/mesh/rules.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/base/integers.h"

namespace ndmesh::mesh {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Sizes = std::vector<std::int64_t>;

RuleInput on(MeshSizes sizes) {
  RuleInput input;
  input.mesh = sizes;
  return input;
}

RuleInput heads(std::int64_t query, std::int64_t kv, std::int64_t tp, std::int64_t cp = 1) {
  RuleInput input = on({.tp = tp, .cp = cp});
  input.heads = query;
  input.kv_heads = kv;
  return input;
}

RuleInput experts(std::int64_t count, MeshSizes sizes, std::int64_t ep) {
  sizes.ep = ep;
  RuleInput input = on(sizes);
  input.experts = count;
  return input;
}

RuleInput batch(std::int64_t global, std::int64_t micro, MeshSizes sizes) {
  RuleInput input = on(sizes);
  input.global_batch = global;
  input.micro_batch = micro;
  return input;
}

TEST(Rules, EveryRuleIsNamedOnceAndStated) {
  std::vector<std::string_view> names;
  for (const Rule& rule : all_rules()) {
    EXPECT_FALSE(rule.statement.empty());
    EXPECT_EQ(std::count(names.begin(), names.end(), rule.name), 0) << rule.name;
    names.push_back(rule.name);
  }
  EXPECT_GE(names.size(), 15u);
}

TEST(Rules, UnknownNumbersBreakNothing) {
  EXPECT_THAT(broken_rules(on({.tp = 7, .cp = 3, .dp_shard = 5, .pp = 2})), IsEmpty());
}

TEST(Rules, TpSizesOfHeadCounts) {
  struct Case {
    std::int64_t query, kv;
    Sizes without, with;
  };
  for (const Case& c :
       {Case{28, 4, {1, 2, 4}, {1, 2, 4, 28}},
        Case{40, 40, {1, 2, 4, 5, 8, 10, 20, 40}, {1, 2, 4, 5, 8, 10, 20, 40}},
        Case{40, 8, {1, 2, 4, 8}, {1, 2, 4, 8, 40}}, Case{64, 8, {1, 2, 4, 8}, {1, 2, 4, 8, 16, 32, 64}},
        Case{14, 2, {1, 2}, {1, 2, 14}}, Case{14, 4, {}, {}}, Case{6, 2, {1, 2}, {1, 2, 6}}}) {
    EXPECT_EQ(legal_tp_sizes(c.query, c.kv, false), c.without) << c.query << "," << c.kv;
    EXPECT_EQ(legal_tp_sizes(c.query, c.kv, true), c.with) << c.query << "," << c.kv;
    for (std::int64_t tp = 1; tp <= 64; ++tp) {
      const bool legal = std::count(c.with.begin(), c.with.end(), tp) > 0;
      EXPECT_EQ(broken_rules(heads(c.query, c.kv, tp)).empty(), legal)
          << c.query << "," << c.kv << " tp " << tp;
    }
  }
}

TEST(Rules, MoreTpRanksThanKvHeads) {
  EXPECT_THAT(broken_rules(heads(32, 4, 8)), IsEmpty());
  EXPECT_THAT(rule_notes(heads(32, 4, 8)),
              ElementsAre("each of the 4 KV heads is held by 2 of the 8 tp ranks"));
  EXPECT_THAT(
      broken_rules(heads(32, 4, 64)),
      ElementsAre(
          "mesh.tp_size: 64 does not divide the 32 query heads (num_attention_heads); legal are 1, 2, "
          "4, 8, 16, 32"));
}

TEST(Rules, HeadGroupsMustBeWhole) {
  EXPECT_THAT(broken_rules(heads(14, 4, 1)),
              ElementsAre(AllOf(HasSubstr("num_attention_heads 14"), HasSubstr("num_key_value_heads 4"))));
  EXPECT_THAT(
      broken_rules(heads(14, 4, 3)),
      ElementsAre(HasSubstr("no mesh can split it"), HasSubstr("no size is legal"), HasSubstr("4 KV heads")));
}

TEST(Rules, SixRanksForNinetySixHeads) {
  RuleInput input = heads(96, 8, 6);
  input.vocab = 151552;
  input.layers = 92;
  input.world = 6;
  const std::vector<std::string> broken = broken_rules(input);
  ASSERT_EQ(broken.size(), 1u);  // the vocabulary is padded, not refused
  EXPECT_THAT(broken[0], AllOf(HasSubstr("mesh.tp_size: 6"), HasSubstr("8 KV heads"), HasSubstr("24"),
                               HasSubstr("on the same ranks mesh.tp_size 2 with mesh.pp_size 3")));
  EXPECT_THAT(rule_notes(input),
              ElementsAre("vocab_size 151552 is padded inside to 151554, a multiple of mesh.tp_size "
                          "6; files and counts keep 151552"));
  input.mesh = {.tp = 2, .pp = 3};
  EXPECT_THAT(broken_rules(input), IsEmpty());
  EXPECT_THAT(rule_notes(input), ElementsAre("92 layers on 3 stages: 2 of 31, 1 of 30"));
  input.mesh = {.tp = 24};
  input.world = 24;
  EXPECT_THAT(broken_rules(input), IsEmpty());
  EXPECT_EQ(round_up(151552, 24), 151560);
}

TEST(Rules, FeedForwardRowsMayBeUnequalButNotNone) {
  RuleInput input = on({.tp = 6});
  input.ffn = 130;
  EXPECT_THAT(broken_rules(input), IsEmpty());
  EXPECT_THAT(rule_notes(input), ElementsAre("130 feed-forward rows on 6 tp ranks: 4 of 22, 2 of 21"));
  input.ffn = 5;
  EXPECT_THAT(broken_rules(input), ElementsAre(AllOf(HasSubstr("mesh.tp_size: 6"), HasSubstr("at most 5"))));
}

TEST(Rules, StagesNeedLayers) {
  RuleInput input = on({.pp = 8});
  input.layers = 4;
  EXPECT_THAT(broken_rules(input),
              ElementsAre("mesh.pp_size: 8 stages for 4 layers (num_hidden_layers); allowed are 1 to 4"));
  input = on({.pp = 4});
  input.layers = 6;
  EXPECT_THAT(broken_rules(input), IsEmpty());
  input.chunks = 2;
  EXPECT_THAT(broken_rules(input), ElementsAre(HasSubstr("are 8 stages for 6 layers")));
}

TEST(Rules, MicroBatchesAndPipelineDepth) {
  const RuleInput shallow = batch(2, 1, {.pp = 8});
  EXPECT_THAT(broken_rules(shallow), IsEmpty());
  EXPECT_THAT(rule_notes(shallow),
              ElementsAre("mesh.pp_size 8 with 2 micro-batches: the pipeline waits for 77.8 % of a step"));
  EXPECT_DOUBLE_EQ(pipeline_bubble(8, 2), 7.0 / 9.0);

  EXPECT_FALSE(interleaves(10, 4, Interleaving::classic));
  EXPECT_TRUE(interleaves(10, 4, Interleaving::flexible));  // 2 rounds of 5
  EXPECT_FALSE(interleaves(11, 4, Interleaving::classic));
  EXPECT_FALSE(interleaves(11, 4, Interleaving::flexible));
  EXPECT_TRUE(interleaves(8, 4, Interleaving::classic));
  EXPECT_TRUE(interleaves(8, 4, Interleaving::flexible));
  EXPECT_FALSE(interleaves(3, 6, Interleaving::classic));

  RuleInput input = batch(40, 2, {.dp_shard = 2, .pp = 4});
  input.chunks = 2;
  EXPECT_THAT(broken_rules(input), ElementsAre(AllOf(HasSubstr("batch.global: 40 makes 10 micro-batches"),
                                                     HasSubstr("nearest: 32 or 48"))));
  input.interleaving = Interleaving::flexible;
  EXPECT_THAT(broken_rules(input), IsEmpty());
  input.global_batch = 44;
  EXPECT_THAT(broken_rules(input),
              ElementsAre(AllOf(HasSubstr("11 micro-batches"), HasSubstr("nearest: 40 or 48"))));
}

TEST(Rules, GlobalBatchIsWholeMicroBatches) {
  const RuleInput input = batch(32, 1, {.tp = 8, .dp_replicate = 23, .pp = 8});
  EXPECT_EQ(input.mesh.world(), 1472);
  EXPECT_THAT(broken_rules(input),
              ElementsAre("batch.global: 32 is not a multiple of 23 = batch.micro 1 x 23 batch ranks "
                          "(mesh.dp_replicate_size 23 x mesh.dp_shard_size 1); nearest: 23 or 46"));
  EXPECT_EQ(micro_batches(batch(32, 2, {.dp_shard = 4})), 4);
  EXPECT_EQ(micro_batches(batch(8, 2, {.dp_replicate = 4})), 1);
  EXPECT_EQ(micro_batches(batch(8, 2, {.dp_shard = 2})), 2);
  EXPECT_EQ(micro_batches(batch(8, 2, {.tp = 2, .cp = 2, .dp_shard = 2, .pp = 2})), 2);  // only dp multiplies
  EXPECT_THAT(broken_rules(batch(6, 1, {.dp_shard = 4})), ElementsAre(HasSubstr("nearest: 4 or 8")));
  EXPECT_THAT(broken_rules(batch(3, 2, {.dp_shard = 4})), ElementsAre(HasSubstr("nearest: 8")));
}

TEST(Rules, WorldIsTheProductOfTheDenseAxes) {
  RuleInput input = on({.cp = 8, .dp_shard = 8});
  input.world = 8;
  EXPECT_THAT(broken_rules(input),
              ElementsAre("mesh: mesh.cp_size 8 x mesh.dp_shard_size 8 = 64 ranks, but the run has "
                          "8; any one of these fits: mesh.cp_size 1, mesh.dp_shard_size 1"));
  input = experts(8, {.dp_shard = 4}, 2);
  input.world = 8;
  EXPECT_THAT(broken_rules(input), ElementsAre(AllOf(HasSubstr("= 4 ranks, but the run has 8"),
                                                     HasSubstr("mesh.ep_size 2 regroups ranks"))));
  for (const std::int64_t ep : {8, 4}) {
    input = experts(8, {.tp = 2, .cp = 2, .dp_shard = 2}, ep);
    input.world = 8;
    EXPECT_THAT(broken_rules(input), IsEmpty());
    EXPECT_EQ(Mesh(input.mesh).size(ExpertAxis::edp), 8 / ep);
  }
}

TEST(Rules, AutoIsResolvedOnlyWhenWhole) {
  EXPECT_EQ(resolve_dp_shard({.tp = 2, .pp = 3}, 6), 1);
  EXPECT_EQ(resolve_dp_shard({.tp = 2, .dp_shard = 77}, 64), 32);
  try {
    resolve_dp_shard({.tp = 2, .pp = 3}, 8);
    FAIL() << "accepted";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("mesh.dp_shard_size: auto"), HasSubstr("pp=3,tp=2 = 6"),
                                    HasSubstr("it has 8"), HasSubstr("nearest: 6 or 12")));
  }
  EXPECT_THROW(resolve_dp_shard({.tp = 2}, 1), RequestError);
  EXPECT_THROW(resolve_dp_shard({}, 0), RequestError);
}

TEST(Rules, ExpertsAndTheirRanks) {
  EXPECT_THAT(broken_rules(experts(8, {.dp_shard = 8}, 8)), IsEmpty());
  EXPECT_THAT(broken_rules(experts(8, {.dp_shard = 8}, 3)),
              ElementsAre("mesh.ep_size: 3 does not divide the 8 experts; legal are 1, 2, 4, 8",
                          AllOf(HasSubstr("mesh.ep_size 3 x mesh.etp_size 1"), HasSubstr("= 8"))));
  EXPECT_EQ(broken_rules(experts(8, {.dp_shard = 8}, 16)).size(), 2u);
  EXPECT_THAT(broken_rules(experts(60, {.dp_shard = 8}, 8)),
              ElementsAre("mesh.ep_size: 8 does not divide the 60 experts; legal are 1, 2, 4"));
  EXPECT_THAT(broken_rules(experts(60, {.dp_shard = 8}, 4)), IsEmpty());
  for (const std::int64_t ep : {16, 32}) {
    const RuleInput input = experts(128, {.cp = 16, .dp_shard = 2}, ep);
    EXPECT_THAT(broken_rules(input), IsEmpty());
    EXPECT_EQ(Mesh(input.mesh).size(ExpertAxis::edp), 32 / ep);
  }
  RuleInput etp = experts(8, {.dp_shard = 2}, 2);
  etp.mesh.etp = 3;
  EXPECT_THAT(broken_rules(etp), ElementsAre(HasSubstr("none is legal with mesh.etp_size 3")));
}

TEST(Rules, DenseModelsHaveNoExpertAxes) {
  EXPECT_THAT(
      broken_rules(experts(0, {.dp_shard = 4}, 2)),
      ElementsAre(
          "mesh.ep_size 2 and mesh.etp_size 1: the model is dense, it has no experts to place; both must "
          "be 1"));
}

TEST(Rules, SequencesSplitOverTpAndCp) {
  const auto sequence = [](std::int64_t tokens, MeshSizes sizes) {
    RuleInput input = on(sizes);
    input.seq_len = tokens;
    return input;
  };
  struct Case {
    MeshSizes sizes;
    std::int64_t needed;
  };
  for (const Case& c : {Case{{.tp = 4}, 8196}, Case{{.tp = 8}, 8200}, Case{{.tp = 4, .cp = 2}, 8208}}) {
    EXPECT_EQ(round_up(8193, sequence_multiple(c.sizes, ContextSplit::sequence)), c.needed);
    EXPECT_THAT(broken_rules(sequence(8193, c.sizes)),
                ElementsAre(HasSubstr(" or " + std::to_string(c.needed))));
    EXPECT_THAT(broken_rules(sequence(c.needed, c.sizes)), IsEmpty());
  }
  // Packed documents: only the part of cp counts.
  for (const auto& [cp, lengths] : {std::pair{2, Sizes{8, 12}}, std::pair{4, Sizes{8, 16}}}) {
    const std::int64_t multiple = sequence_multiple({.cp = cp}, ContextSplit::sequence);
    EXPECT_EQ((Sizes{round_up(7, multiple), round_up(9, multiple)}), lengths);
  }
  // Rounding up must not exceed what the model can take.
  RuleInput limited = sequence(8200, {.tp = 4, .cp = 2});
  limited.max_positions = 8200;
  EXPECT_THAT(
      broken_rules(limited),
      ElementsAre(
          "batch.seq_len: 8200 is not a multiple of 16 (mesh.tp_size 4 x 2 x mesh.cp_size 2); nearest: "
          "8192"));
  limited.seq_len = 8208;
  EXPECT_THAT(broken_rules(limited),
              ElementsAre("batch.seq_len: 8208 is more than the 8200 positions of the model "
                          "(max_position_embeddings)"));
  limited.seq_len = 10;
  limited.max_positions = 12;
  EXPECT_THAT(broken_rules(limited), ElementsAre(HasSubstr("nearest: none")));
}

TEST(Rules, ContextParallelOverHeads) {
  const auto split = [](std::int64_t query, std::int64_t kv, std::int64_t cp, std::int64_t tp = 1) {
    RuleInput input = heads(query, kv, tp, cp);
    input.context = ContextSplit::heads;
    return broken_rules(input);
  };
  EXPECT_THAT(split(16, 2, 4), IsEmpty());
  EXPECT_THAT(split(40, 8, 40), IsEmpty());
  EXPECT_THAT(split(32, 8, 4, 4), IsEmpty());
  EXPECT_THAT(split(32, 8, 2), IsEmpty());
  EXPECT_THAT(split(40, 8, 16),
              ElementsAre(AllOf(HasSubstr("mesh.cp_size: 16"), HasSubstr("40 query and 8 KV"),
                                HasSubstr("legal are 1, 2, 4, 8, 40"))));
  EXPECT_THAT(split(40, 8, 10), ElementsAre(HasSubstr("mesh.cp_size: 10")));
  EXPECT_THAT(split(28, 7, 2), ElementsAre(HasSubstr("legal are 1, 7, 14, 28")));
  EXPECT_EQ(sequence_multiple({.tp = 2, .cp = 4}, ContextSplit::heads), 8);
}

TEST(Rules, BadSizesAreReportedBesideTheOtherRules) {
  RuleInput input = heads(6, 2, 4);
  input.mesh.pp = 0;
  input.mesh.ep = -1;
  const std::vector<std::string> broken = broken_rules(input);
  ASSERT_EQ(broken.size(), 3u);
  EXPECT_EQ(broken[0], "mesh.pp_size: 0 is not allowed; the least is 1");
  EXPECT_EQ(broken[1], "mesh.ep_size: -1 is not allowed; the least is 1");
  EXPECT_THAT(broken[2], HasSubstr("mesh.tp_size: 4"));
}

TEST(Rules, HugeSizesAreRefusedNotOverflowed) {
  RuleInput input = batch(8, 1, {.cp = 1LL << 40, .dp_shard = 1LL << 40});
  input.seq_len = 128;
  input.world = 8;
  EXPECT_THAT(broken_rules(input), ElementsAre(HasSubstr("more ranks than the 2147483647 that are allowed")));
}

TEST(Rules, WidthsNeedARowForEachRank) {
  RuleInput input = on({.tp = 8});
  input.hidden = 4;
  EXPECT_THAT(broken_rules(input),
              ElementsAre("mesh.tp_size: 8 ranks for a hidden size (hidden_size) of 4; at most 4"));
  input = experts(8, {.tp = 4, .etp = 4}, 1);
  input.expert_ffn = 3;
  EXPECT_THAT(broken_rules(input), ElementsAre(HasSubstr("mesh.etp_size: 4 ranks for an expert width")));
}

TEST(Rules, ZeroCutsOverShardRanks) {
  RuleInput input = on({.dp_shard = 4, .dp_replicate = 2});
  EXPECT_THAT(broken_rules(input), IsEmpty());
  input.zero = 0;
  EXPECT_THAT(broken_rules(input),
              ElementsAre(AllOf(HasSubstr("shard.zero is 0, but mesh.dp_shard_size is 4"),
                                HasSubstr("mesh.dp_replicate_size 8 for whole copies"))));
  input.zero = 1;
  EXPECT_THAT(broken_rules(input), IsEmpty());
}

// One input that a runtime without limits takes, and what each limit says of it.
TEST(Rules, RuntimesLimitWhatIsLegal) {
  RuleInput all = on({.tp = 4, .cp = 2, .dp_shard = 1, .dp_replicate = 2, .pp = 3, .ep = 2, .etp = 2});
  all.heads = 8;
  all.kv_heads = 2;
  all.vocab = 257;
  all.hidden = 50;
  all.ffn = 130;
  all.experts = 8;
  all.layers = 8;
  all.tied = true;
  all.zero = 3;
  all.runtime.name = "thing";
  EXPECT_THAT(broken_rules(all), IsEmpty());
  EXPECT_TRUE(is_legal(all));
  const auto limited = [&](auto change) {
    RuleInput input = all;
    change(input.runtime);
    EXPECT_FALSE(is_legal(input));
    return broken_rules(input);
  };
  using R = RuntimeLimits;
  EXPECT_THAT(limited([](R& r) { r.has_pipeline = false; }),
              ElementsAre("mesh.pp_size: 3, but thing has no pipeline stages; allowed: 1"));
  EXPECT_THAT(limited([](R& r) { r.has_context = false; }),
              ElementsAre("mesh.cp_size: 2, but thing has no context parallelism; allowed: 1"));
  EXPECT_THAT(limited([](R& r) { r.has_experts = false; }),
              ElementsAre(HasSubstr("mesh.ep_size 2 and mesh.etp_size 2: thing has no expert parallelism")));
  EXPECT_THAT(limited([](R& r) { r.cuts_experts_freely = false; }),
              ElementsAre(HasSubstr("mesh.etp_size: 2, but thing cuts an expert over 1 rank or over all 4")));
  EXPECT_THAT(limited([](R& r) { r.shares_kv_heads = false; }),
              ElementsAre(HasSubstr("mesh.tp_size: 4, but thing does not share the 2 KV heads")));
  EXPECT_THAT(
      limited([](R& r) { r.cuts_unequally = false; }),
      ElementsAre("mesh.tp_size: 4 does not divide hidden_size 50 and intermediate_size 130, which thing "
                  "cuts into equal parts only"));
  EXPECT_THAT(limited([](R& r) { r.cuts_unequally = r.pads_vocabulary = false; }),
              ElementsAre(HasSubstr("intermediate_size 130 and vocab_size 257")));
  EXPECT_THAT(limited([](R& r) { r.has_unequal_stages = false; }),
              ElementsAre(AllOf(HasSubstr("8 layers (num_hidden_layers) are no multiple of 3"),
                                HasSubstr("legal are 1, 2, 4, 8"))));
  EXPECT_THAT(limited([](R& r) { r.ties_over_stages = false; }),
              ElementsAre(HasSubstr("mesh.pp_size: 3, but thing does not tie input and output table")));
  EXPECT_THAT(
      limited([](R& r) { r.replicates_unsharded = false; }),
      ElementsAre(HasSubstr("mesh.dp_replicate_size: 2, but thing replicates beside tp or cp only with")));
  EXPECT_THAT(limited([](R& r) { r.most_zero = 2; }), ElementsAre("shard.zero: 3, but thing has at most 2"));
  EXPECT_THAT(limited([](R& r) { r.most_zero_staged = 1; }),
              ElementsAre("shard.zero: 3 with mesh.pp_size 3, but with pipeline stages thing has at most 1"));
  EXPECT_THAT(
      limited([](R& r) { r.most_zero_experts = 2; }),
      ElementsAre("shard.zero: 3 with mesh.ep_size 2 and mesh.tp_size 4, but with both thing has at most 2"));
  EXPECT_EQ(limited([](R& r) { r.has_pipeline = r.has_context = r.ties_over_stages = false; }).size(), 3u);
}

TEST(Rules, LegalMeansNothingIsBroken) {
  for (std::int64_t tp = 1; tp <= 12; ++tp) {
    for (std::int64_t pp = 1; pp <= 6; ++pp) {
      RuleInput input = heads(12, 4, tp);
      input.mesh.pp = pp;
      input.layers = 5;
      EXPECT_EQ(is_legal(input), broken_rules(input).empty()) << tp << "," << pp;
    }
  }
}

TEST(Rules, InputOfAModel) {
  model::ModelSpec spec;
  spec.vocab = 257;
  spec.heads = 6;
  spec.kv_heads = 2;
  spec.layers = 5;
  spec.ffn = 130;
  spec.max_positions = 512;
  const RuleInput input = rule_input(spec, {.tp = 3, .pp = 6});
  const std::vector<std::string> broken = broken_rules(input);
  ASSERT_EQ(broken.size(), 2u);
  EXPECT_THAT(broken[0], HasSubstr("mesh.tp_size: 3 neither divides the 2 KV heads"));
  EXPECT_THAT(broken[1], HasSubstr("mesh.pp_size: 6"));
}

TEST(Rules, InputOfAModelWithLatentAttentionAndExperts) {
  model::ModelSpec spec;
  spec.heads = 128;
  spec.kv_heads = 1;  // no matter: keys and values come out of the latent for every query head
  spec.latent = model::LatentAttention{};
  spec.experts = model::Experts{.count = 256, .per_token = 8, .ffn = 2048};
  spec.tied = true;
  EXPECT_THAT(broken_rules(rule_input(spec, {.tp = 64, .ep = 64})), IsEmpty());
  EXPECT_THAT(broken_rules(rule_input(spec, {.tp = 48, .ep = 3})),
              ElementsAre(HasSubstr("128 query heads"), HasSubstr("128 KV heads"), HasSubstr("256 experts")));
  EXPECT_EQ(rule_input(spec, {}).expert_ffn, 2048);
  EXPECT_TRUE(rule_input(spec, {}).tied);
}

}  // namespace
}  // namespace ndmesh::mesh
