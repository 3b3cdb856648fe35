#include "ndmesh/plan/measured/memory_of_runs.h"

#include <algorithm>
#include <array>
#include <string>

#include "ndmesh/base/text.h"
#include "ndmesh/plan/measured/measured_setup.h"

namespace ndmesh::plan {
namespace {

/// Logits in the compute dtype and their gradient, nothing wide: a loss that one compiled or fused kernel
/// computes.
void fuse_loss(MemoryProfile& profile) {
  profile.logits_in_compute = 2;
  profile.logits_wide = 0;
}

/// Megatron before Transformer Engine: its fused softmax keeps probabilities, the loss works on float32
/// logits.
void early_megatron(MemoryProfile& profile) {
  profile.flash_attention = false;
  profile.score_copies = 1;
  profile.logits_wide = 2;
  profile.dummy_weight_gradients = false;
}

/// Megatron-DeepSpeed on A100s, BLOOM's.
void megatron_deepspeed(MemoryProfile& profile) {
  profile.flash_attention = false;
  profile.logits_in_compute = 1;
  profile.logits_wide = 2;
}

/// Aleph Alpha's trainer: PyTorch's own loss on the logits of all tp ranks, gathered inputs kept, activations
/// not fused.
void aleph_alpha(MemoryProfile& profile) {
  profile.bucket_bytes = 1'000'000'000;
  profile.gathers_logits = true;
  profile.logits_in_compute = 2;
  profile.logits_wide = 4;
  profile.saves_gathered_input = true;
  profile.fused_norms = false;
  profile.fused_activation = false;
}

/// Transformers' models under FSDP2: logits and their gradient live beside the float32 copies.
void prime_rl(MemoryProfile& profile) {
  profile.logits_in_compute = 2;
  profile.logits_wide = 3;
}

/// NeMo's performance recipes reduce gradients in bfloat16.
void nemo(MemoryProfile& profile) {
  profile.wide_gradients = false;
}

struct GroupProfile {
  std::string_view group;  ///< its name begins so
  void (*apply)(MemoryProfile&);
};
constexpr std::array groups = {GroupProfile{"sc21", early_megatron},
                               GroupProfile{"korthikanti", early_megatron},
                               GroupProfile{"nemo-launcher", early_megatron},
                               GroupProfile{"megascale", early_megatron},
                               GroupProfile{"zero-bubble", early_megatron},
                               GroupProfile{"bloom", megatron_deepspeed},
                               GroupProfile{"aleph-alpha", aleph_alpha},
                               GroupProfile{"mosaic", fuse_loss},  // FusedCrossEntropy, in place
                               GroupProfile{"dgxc", nemo},
                               GroupProfile{"prime-rl", prime_rl}};

void note_kernels(const MeasuredRow& row, MemoryProfile& profile) {
  if (row.noted("kernel torch") || row.noted("kernel fused") || row.noted("attention-backend=unfused") ||
      row.noted("transformer-impl=local")) {
    profile.flash_attention = false;
  }
  if (row.noted("kernel torch")) profile.score_copies = 4;  // softmax in float32, masks
  if (row.noted("attention-backend=unfused"))
    profile.score_copies = 1;  // Transformer Engine keeps probabilities only
  if (row.noted("RMS kernel")) profile.fused_norms = true;
  if (row.noted("no-gradient-accumulation-fusion")) {
    profile.accumulates_in_place = false;
    profile.dummy_weight_gradients = false;
  }
  if (row.noted("moe_act") || row.noted("layernorm")) profile.selective = Selective::cheap;
  if (row.noted("fp32 gradient accumulation")) profile.wide_gradient_copy = true;
}

/// "2025-02" where the source tells "(2025-02)"; otherwise the last month of the row's year.
std::string month(const MeasuredRow& row) {
  const std::string source(row.text("source"));
  for (std::size_t at = source.find("(20"); at != std::string::npos; at = source.find("(20", at + 1)) {
    if (source.size() >= at + 9 && source[at + 5] == '-' && source[at + 8] == ')')
      return source.substr(at + 1, 7);
  }
  return std::string(row.text("year")) + "-12";
}

void note_loss(const MeasuredRow& row, MemoryProfile& profile) {
  const std::string group = lower(row.text("group"));
  if (group.starts_with("megatron-functional") && !row.noted("cross-entropy-loss-fusion")) {
    profile.logits_wide = 2;
  }
  // torchtitan compiles the loss in its DeepSeek configurations, with the whole graph, and since March 2025
  // with the model.
  const bool compiled = row.noted("graph trainer") || row.noted("model+loss") ||
                        lower(row.text("model_name")).starts_with("deepseek") ||
                        (row.noted("compile") && month(row) >= "2025-03");
  if (group == "torchtitan" && compiled) fuse_loss(profile);
  // Before mid 2024 it held the logits through backward.
  if (group == "torchtitan" && month(row) < "2024-06") profile.logits_in_compute = 1;
}

}  // namespace

void set_memory_of_run(const MeasuredRow& row, std::int64_t micro, Problem& problem) {
  const std::string group = lower(row.text("group"));
  MemoryProfile& profile = problem.profile.memory;
  const auto* const known =
      std::ranges::find_if(groups, [&](const GroupProfile& entry) { return group.starts_with(entry.group); });
  if (known != groups.end()) {
    known->apply(profile);
  }
  note_kernels(row, profile);
  note_loss(row, profile);
  problem.loss_chunk = measured_loss_chunk(row, micro * problem.seq_len);
  profile.chunks_loss = problem.loss_chunk > 0;
  if (group.starts_with("simumax"))
    problem.context = job::ContextKind::alltoall;  // its cp cases are all-to-all
}

}  // namespace ndmesh::plan
