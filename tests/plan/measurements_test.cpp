#include "ndmesh/plan/measured/measurements.h"

#include <gmock/gmock.h>

#include <cmath>

#include "ndmesh/base/error.h"
#include "ndmesh/plan/measured/measured_setup.h"
#include "plan/measured_rows.h"

namespace ndmesh::plan {
namespace {

using testing::HasSubstr;

const Measurements& training() {
  static const Measurements all =
      read_measurements(std::string(NDMESH_TEST_DATA) + "/measurements/training.csv");
  return all;
}

const Measurement& row(const std::string& id) {
  for (const Measurement& found : training().list) {
    if (found.id == id) return found;
  }
  throw std::out_of_range(id + " is not among the measurements");
}

/// Why a row or the named part of it is left out; empty when it is not.
std::string reason(const Measurements& all, const std::string& id, const std::string& part = "") {
  for (const LeftOut& found : all.left_out) {
    if (found.id == id && found.part == part) return found.reason;
  }
  return {};
}

/// A table of one row that is whole, with some cells changed.
Measurements one_row(const Cells& changes) {
  return parse_measurements(training_header() + training_row(changes), "t.csv");
}

std::string refusal(const Cells& changes, const std::string& part = "") {
  return reason(one_row(changes), "r", part);
}

TEST(Measurements, AWholeRow) {
  const Measurement llama = row("simumax-011");
  EXPECT_EQ(llama.group, "simumax-b200");
  EXPECT_EQ(llama.problem.model.layers, 12);
  EXPECT_EQ(llama.problem.model.hidden, 8192);
  EXPECT_EQ(llama.problem.cluster.devices(), 8);
  EXPECT_EQ(llama.problem.profile.name, "megatron");
  EXPECT_EQ(llama.problem.seq_len, 4096);
  EXPECT_EQ(llama.problem.global_batch, 16);
  EXPECT_EQ(llama.candidate.mesh.tp, 4);
  EXPECT_EQ(llama.candidate.mesh.dp_shard, 2);  // zero 1 over all data-parallel ranks
  EXPECT_EQ(llama.candidate.mesh.dp_replicate, 1);
  EXPECT_EQ(llama.candidate.zero, 1);
  EXPECT_DOUBLE_EQ(*llama.seconds, 0.7656);
  ASSERT_TRUE(llama.memory);
  EXPECT_EQ(llama.memory->kind, MeasuredMemory::Kind::allocated);
  EXPECT_EQ(llama.memory->bytes, std::llround(39.072 * 1073741824.0));
  EXPECT_EQ(llama.fits, true);
}

TEST(Measurements, LatentAttentionAndExpertsByName) {
  const model::ModelSpec& v2 = row("simumax-006").problem.model;
  ASSERT_TRUE(v2.latent && v2.experts);
  EXPECT_EQ(v2.latent->query_rank, 1536);
  EXPECT_EQ(v2.latent->kv_rank, 512);
  EXPECT_EQ(v2.experts->layers, (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(row("mlm-017").problem.model.experts->layers[2], false);
  EXPECT_EQ(row("mlm-017").problem.model.experts->layers[3], true);
}

TEST(Measurements, TimeFromTokensAndFromFlops) {
  // 16 x 8192 tokens at 5762 tokens/s on each of 8 devices.
  EXPECT_DOUBLE_EQ(*row("titan-001").seconds, 16 * 8192.0 / 5762 / 8);
  // The paper's formula at its printed TFLOP/s gives 3.528 s, as the table's notes say.
  EXPECT_NEAR(*row("sc21-001").seconds, 3.528, 0.001);
}

TEST(Measurements, OutOfMemoryRowsDecideFitOnly) {
  const Measurement& failed = row("aleph-001");
  EXPECT_EQ(failed.fits, false);
  EXPECT_FALSE(failed.seconds);
  EXPECT_EQ(failed.candidate.zero, 1);  // not restated: shared over all data-parallel ranks
}

TEST(Measurements, EveryRowIsThereOrHasItsReason) {
  const Measurements& all = training();
  std::int64_t left_out = 0;
  for (const LeftOut& found : all.left_out) {
    left_out += found.part.empty();
    EXPECT_FALSE(found.reason.empty());
  }
  EXPECT_EQ(all.rows, static_cast<std::int64_t>(all.list.size()) + left_out);
  EXPECT_THAT(reason(all, "mosaic-179"), HasSubstr("an outlier against its neighbours"));
  EXPECT_THAT(reason(all, "bridge-035"), HasSubstr("4 bits"));
  EXPECT_THAT(reason(all, "bridge-003"), HasSubstr("layers is missing"));
  EXPECT_THAT(reason(all, "zb-010"), HasSubstr("\"ZB-2p\" is not modelled"));
  EXPECT_EQ(row("zb-008").candidate.schedule, schedule::Kind::zb_h1);
}

TEST(Measurements, ReasonsNameTheCell) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_THAT(refusal({{"layers", ""}, {"micro_batch", ""}}),
              testing::AllOf(HasSubstr("layers is missing"), HasSubstr("micro_batch is missing")));
  EXPECT_THAT(refusal({{"hidden", "4k"}}), HasSubstr("hidden is \"4k\"; allowed: a whole number"));
  EXPECT_THAT(refusal({{"step_time_s", "-1"}}),
              HasSubstr("step_time_s is \"-1\"; allowed: a number above 0"));
  EXPECT_THAT(refusal({{"gpu", "H1000"}}), HasSubstr("gpu \"H1000\" is no device of the catalogue"));
  EXPECT_THAT(refusal({{"tp", "4"}}), HasSubstr("has 32 ranks; gpus is 16"));
  EXPECT_THAT(refusal({{"nodes_gpus_per_node", "3x8"}}), HasSubstr("not the same number"));
  EXPECT_THAT(refusal({{"global_batch", "63"}}), HasSubstr("global_batch 63 is no multiple"));
  EXPECT_THAT(refusal({{"zero_stage", "4"}}), HasSubstr("zero_stage is 4; allowed: 0 to 3"));
  EXPECT_THAT(refusal({{"recompute", "some"}}), HasSubstr("recompute is \"some\""));
  EXPECT_THAT(refusal({{"recompute", "partial"}}), HasSubstr("which layers are recomputed is not stated"));
  EXPECT_THAT(refusal({{"pp_schedule", "Interleaved 1F1B"}}), HasSubstr("vpp is missing"));
  EXPECT_THAT(refusal({{"pp_schedule", "DualPipe"}}), HasSubstr("\"DualPipe\" is not modelled"));
  EXPECT_THAT(refusal({{"precision", "NVFP4"}}), HasSubstr("products in 4 bits are not modelled"));
  EXPECT_THAT(refusal({{"notes", "hybrid Mamba+attention"}}),
              HasSubstr("not all attention and feed-forward"));
  EXPECT_THAT(refusal({{"notes", "activation offload to CPU"}}), HasSubstr("offload of activations"));
  EXPECT_THAT(refusal({{"heads", "33"}}), HasSubstr("33 query heads"));
  EXPECT_THAT(refusal({{"layers", "10000000"}}), HasSubstr("larger than any"));
  EXPECT_THAT(refusal({{"global_batch", "8000000"}}), HasSubstr("more than a million actions"));
  EXPECT_THAT(refusal({{"step_time_s", ""}, {"recompute", ""}}),
              HasSubstr("nothing is left that was measured"));
}

TEST(Measurements, WhatSourcesSayAgainstTheirRows) {
  EXPECT_THAT(refusal({{"notes", "do not use for validation"}}), HasSubstr("not to validate"));
  EXPECT_THAT(refusal({{"notes", "natural routing"}}, "time"), HasSubstr("not balanced"));
  EXPECT_THAT(refusal({{"recompute", ""}}, "verdict"), HasSubstr("recompute is not stated"));
  EXPECT_FALSE(one_row({{"notes", "natural routing"}}).list.front().seconds);
  EXPECT_TRUE(one_row({{"notes", "natural routing"}}).list.front().fits);
  EXPECT_THAT(
      refusal(
          {{"group", "bloom"}, {"pp", "6"}, {"dp_replicate", "8"}, {"gpus", "96"}, {"global_batch", "1568"}}),
      HasSubstr("slip"));
}

TEST(Measurements, SharedStatesRecomputeAndMicroBatches) {
  const auto candidate = [](const Cells& changes) {
    const Measurements all = one_row(changes);
    EXPECT_EQ(all.list.size(), 1U) << reason(all, "r");
    return all.list.front().candidate;
  };
  const Candidate grouped = candidate({{"zero_stage", "1"}, {"notes", "zero1 group of 2"}});
  EXPECT_EQ(grouped.mesh.dp_shard, 2);
  EXPECT_EQ(grouped.mesh.dp_replicate, 2);
  const Candidate plain = candidate({{"zero_stage", "0"}, {"dp_replicate", ""}, {"dp_shard", "4"}});
  EXPECT_EQ(plain.mesh.dp_replicate, 4);
  EXPECT_EQ(plain.mesh.dp_shard, 1);
  const Candidate some = candidate({{"recompute", "partial"}, {"notes", "8 of 32 layers checkpointed"}});
  EXPECT_EQ(some.recompute, (job::Recompute{job::Recompute::Policy::every, 4, 0}));
  EXPECT_EQ(candidate({{"micro_batch", ""}, {"global_batch", "4"}}).micro, 1);  // no other divides it
  const Candidate interleaved = candidate({{"vpp", "4"}});
  EXPECT_EQ(interleaved.schedule, schedule::Kind::interleaved);
  EXPECT_EQ(interleaved.chunks, 4);
}

TEST(Measurements, NetworkCardsFromWords) {
  EXPECT_EQ(nics_of("NVLink/NVSwitch; 8x HDR 200Gb/s InfiniBand per node", 8), "8x200G");
  EXPECT_EQ(nics_of("4x 100Gb RoCE per node", 8), "4x100G");
  EXPECT_EQ(nics_of("1600 Gbps RoCE", 8), "1x1600G");
  EXPECT_EQ(nics_of("NVLink in node; 400 Gb/s RDMA per GPU (Grand Teton)", 8), "8x400G");
  EXPECT_EQ(nics_of("NVLink 4; 4x Omni-Path (OPA) links per node", 4), "4x100G");
  EXPECT_EQ(nics_of("DGX A100 nodes, InfiniBand", 8), "");
}

TEST(Measurements, VtrainTable) {
  const Measurements all = read_measurements(std::string(NDMESH_TEST_DATA) + "/measurements/vtrain.csv");
  ASSERT_EQ(all.list.size(), 40U);
  const Measurement& first = all.list.front();
  EXPECT_EQ(first.id, "line 2");
  EXPECT_EQ(first.group, "vtrain-one-node");
  EXPECT_DOUBLE_EQ(*first.seconds, 0.077216619);
  EXPECT_EQ(first.candidate.mesh, (mesh::MeshSizes{.dp_replicate = 2, .pp = 4}));
  EXPECT_EQ(first.candidate.recompute.policy, job::Recompute::Policy::none);
  EXPECT_EQ(first.problem.model.ffn, 4096);
  EXPECT_FALSE(first.fits);  // the devices' memory is not stated

  const Measurements many = parse_measurements(
      "params_b,gpus,global_batch,micro_batch,hidden,heads,layers,seq_len,tp,dp,pp,iteration_ms\n"
      "18.4,64,512,4,6144,48,40,2048,8,8,1,9000\n1,20,8,1,1024,16,16,1024,1,20,1,5\n1,8,8,1,1024,16,16,1024,"
      "1,8,1,\n",
      "many.csv");
  ASSERT_EQ(many.list.size(), 1U);
  EXPECT_EQ(many.list.front().group, "vtrain-many-nodes");
  EXPECT_EQ(many.list.front().problem.cluster.nodes, 8);
  EXPECT_EQ(many.list.front().candidate.recompute.policy, job::Recompute::Policy::full);
  EXPECT_THAT(reason(many, "line 3"), HasSubstr("no whole nodes of 8"));
  EXPECT_THAT(reason(many, "line 4"), HasSubstr("iteration_ms is missing"));
}

TEST(Measurements, NoTableOfMeasurements) {
  try {
    parse_measurements("a,b\n1,2\n", "t.csv");
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), HasSubstr("t.csv: line 1 lacks the column layers"));
    EXPECT_THAT(error.what(), HasSubstr("neither a training table nor a vTrain table"));
  }
}

/// Every table is read, row by row kept or left out.
TEST(Measurements, MutatedRowsAreKeptOrLeftOut) {
  std::int64_t kept = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const Measurements all = parse_measurements(training_header() + mutated_row(seed), "t.csv");
    EXPECT_EQ(all.rows, 1);
    EXPECT_TRUE(!all.list.empty() || !all.left_out.empty()) << seed;
    kept += static_cast<std::int64_t>(all.list.size());
  }
  EXPECT_GT(kept, 100);
}

}  // namespace
}  // namespace ndmesh::plan
