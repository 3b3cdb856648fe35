#include <gtest/gtest.h>

#include "ndmesh/plan/measured/measurements.h"

/// What a row's notes say of memory beside its mesh.
namespace ndmesh::plan {
namespace {

Problem problem_of(const std::string& group, const std::string& notes, const std::string& source = "",
                   const std::string& model = "llama3-8b") {
  const std::string header =
      "id,source,year,model_name,layers,hidden,ffn_hidden,heads,kv_heads,head_dim,vocab,seq_len,gated_mlp,"
      "gpu,gpus,"
      "dp_shard,zero_stage,micro_batch,global_batch,precision,recompute,tokens_per_s_per_gpu,notes,group\n";
  const std::string row = "x-1," + source + ",2024," + model +
                          ",32,4096,14336,32,8,128,128256,8192,1,H100-80GB-SXM,8,8,3,1,8,bf16,full,5000," +
                          notes + "," + group + "\n";
  const Measurements all = parse_measurements(header + row, "test.csv");
  EXPECT_EQ(all.list.size(), 1U) << (all.left_out.empty() ? "" : all.left_out.front().reason);
  return all.list.at(0).problem;
}

TEST(MemoryOfRuns, LossOfItsDay) {
  const auto wide = [](const Problem& problem) { return problem.profile.memory.logits_wide; };
  EXPECT_EQ(wide(problem_of("torchtitan", "eager")), 3);
  EXPECT_EQ(wide(problem_of("torchtitan", "graph trainer")), 0);
  EXPECT_EQ(wide(problem_of("torchtitan", "compile", "commit (2025-02)")), 3);
  EXPECT_EQ(wide(problem_of("torchtitan", "compile", "commit (2025-03)")), 0);
  EXPECT_EQ(problem_of("torchtitan", "eager", "commit (2024-03)").profile.memory.logits_in_compute, 1);
  EXPECT_EQ(wide(problem_of("megatron-functional-big", "")), 2);
  EXPECT_EQ(wide(problem_of("megatron-functional-big", "cross-entropy-loss-fusion")), 0);
  EXPECT_EQ(wide(problem_of("mosaic", "")), 0);
}

TEST(MemoryOfRuns, ChunkedLoss) {
  EXPECT_EQ(problem_of("torchtitan", "chunked cross entropy").loss_chunk, 1024);
  EXPECT_EQ(problem_of("prime-rl", "RL loss path avoids full logits").loss_chunk, 2048);
  EXPECT_EQ(problem_of("torchtitan", "plain cross entropy").loss_chunk, 0);
}

TEST(MemoryOfRuns, Kernels) {
  const MemoryProfile torch = problem_of("aleph-alpha", "kernel torch; trial 1").profile.memory;
  EXPECT_FALSE(torch.flash_attention);
  EXPECT_FALSE(torch.fused_norms);
  EXPECT_TRUE(torch.gathers_logits);
  const MemoryProfile fused =
      problem_of("aleph-alpha", "kernel flash_attention2 + RMS kernel").profile.memory;
  EXPECT_TRUE(fused.flash_attention);
  EXPECT_TRUE(fused.fused_norms);
  EXPECT_TRUE(problem_of("bloom", "BF16 optimizer with fp32 gradient accumulation")
                  .profile.memory.wide_gradient_copy);
  EXPECT_FALSE(problem_of("megatron-functional-big", "no-gradient-accumulation-fusion")
                   .profile.memory.dummy_weight_gradients);
  EXPECT_EQ(problem_of("xtuner-megatron", "recompute moe_act").profile.memory.selective, Selective::cheap);
}

TEST(MemoryOfRuns, ContextParallelismOfSimuMax) {
  EXPECT_EQ(problem_of("simumax-b200", "").context, job::ContextKind::alltoall);
  EXPECT_EQ(problem_of("bridge-summary", "").context, job::ContextKind::ring);
}

}  // namespace
}  // namespace ndmesh::plan
