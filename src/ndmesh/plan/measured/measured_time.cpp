#include "ndmesh/plan/measured/measured_time.h"

#include <algorithm>
#include <array>
#include <string>

namespace ndmesh::plan {
namespace {

/// Megatron-LM before FlashAttention and the distributed optimizer: fused softmax, gradients summed after the
/// last backward.
TimeProfile early_megatron() {
  TimeProfile profile;
  profile.attention = AttentionKernel::unfused;
  profile.vocabulary_multiple = 128;
  profile.softmax_heads = 4;
  profile.elementwise_passes = 1.5;
  profile.loss_bytes = 40;
  profile.selective = {.attention = true, .elementwise = false, .products = 0};
  profile.overlap_gradients = false;
  profile.overlap_parameters = false;
  return profile;
}

/// Megatron-DeepSpeed with its pipeline engine and ZeRO-1 (BLOOM, vTrain, Aleph Alpha): 16-bit gradients, no
/// overlap.
TimeProfile megatron_deepspeed() {
  TimeProfile profile = early_megatron();
  profile.gradient_bytes = 2;
  profile.gradient_accumulation_fused = false;
  profile.overlap_tensor_backward = false;
  profile.overlap_sends = false;
  return profile;
}

/// Aleph Alpha's scaling code on Megatron-DeepSpeed's ideas: norms and activations op by op.
TimeProfile aleph_alpha() {
  TimeProfile profile = megatron_deepspeed();
  profile.elementwise_passes = 2.5;
  profile.loss_bytes = 60;
  return profile;
}

/// InternEvo: DeepSpeed's ways with fused kernels; the owners of updated parameters send them in turn.
TimeProfile internevo() {
  TimeProfile profile = time_profile(Runtime::deepspeed);
  profile.broadcasts_updates = true;
  return profile;
}

/// Fused kernels in CUDA graphs, gradients in 16 bits.
TimeProfile llmq() {
  TimeProfile profile;
  profile.gradient_bytes = 2;
  profile.graphs = true;
  profile.selective = {.attention = false, .elementwise = true, .products = 0.5};
  return profile;
}

/// SimuMax measured Megatron-Core with all overlaps off.
TimeProfile simumax() {
  TimeProfile profile;
  profile.vocabulary_multiple = 128;
  profile.attention = AttentionKernel::flash3;
  profile.overlap_gradients = false;
  profile.overlap_parameters = false;
  profile.overlap_tensor_backward = false;
  return profile;
}

/// Composer's FSDP: attention fused, elementwise ops eager.
TimeProfile composer() {
  TimeProfile profile;
  profile.elementwise_passes = 2;
  profile.loss_bytes = 40;
  profile.gradient_accumulation_fused = false;
  profile.gradient_bytes = 2;
  profile.overlap_parameters = false;
  profile.reduce_each_micro_batch = true;
  return profile;
}

struct GroupProfile {
  std::string_view group;  ///< its name begins so
  TimeProfile (*make)();
};
constexpr std::array<GroupProfile, 11> groups = {{{"sc21", early_megatron},
                                                  {"korthikanti", early_megatron},
                                                  {"nemo-launcher", early_megatron},
                                                  {"megascale", early_megatron},
                                                  {"bloom", megatron_deepspeed},
                                                  {"aleph-alpha", aleph_alpha},
                                                  {"internevo", internevo},
                                                  {"zero-bubble", early_megatron},
                                                  {"llmq", llmq},
                                                  {"simumax", simumax},
                                                  {"mosaic", composer}}};

void note_attention(const MeasuredRow& row, TimeProfile& profile) {
  if (row.noted("kernel torch") || row.noted("kernel fused") || row.noted("attention-backend=unfused")) {
    profile.attention = AttentionKernel::unfused;
  } else if (row.noted("flash_attentionv1")) {
    profile.attention = AttentionKernel::flash1;
  } else if (row.noted("flash_attention2") || row.noted("flash_attention_2")) {
    profile.attention = AttentionKernel::flash2;
  } else if (row.noted("flash_attention_3")) {
    profile.attention = AttentionKernel::flash3;
  }
}

void note_kernels(const MeasuredRow& row, TimeProfile& profile) {
  if (row.noted("kernel torch")) {
    profile.score_passes = 2.5;
  } else if (row.noted("RMS kernel")) {
    profile.elementwise_passes = 1.5;
  }
  const bool compiled = row.noted("compile") || row.noted("graph trainer");
  if (row.noted("eager") && !compiled) {
    profile.elementwise_passes = 2.5;
    profile.loss_bytes = 40;
  }
  if (row.noted("chunked cross entropy") || row.noted("fused cross entropy") ||
      row.noted("cross-entropy-loss-fusion")) {
    profile.loss_bytes = 12;
  }
  if (row.noted("no-gradient-accumulation-fusion")) {
    profile.gradient_accumulation_fused = false;
  }
}

/// ZeRO-3 of 2021 (the rival in Narayanan et al.): nothing prefetched.
void note_early_zero(const MeasuredRow& row, TimeProfile& profile) {
  if (row.text("zero_stage") == "3") {
    profile.prefetch = false;
    profile.elementwise_passes = 2.5;
    profile.gradient_bytes = 2;
    profile.reduce_each_micro_batch = true;
  }
}

void note_overlaps(const MeasuredRow& row, TimeProfile& profile) {
  if (row.noted("async TP") || row.noted("AsyncTP")) {
    profile.overlap_tensor = true;
  }
  if (row.noted("EP comm overlap on") || row.noted("EP overlap on") || row.noted("dispatcher, overlap on") ||
      row.noted("1F1B overlap")) {
    profile.overlap_experts = true;
  }
  if (row.noted("alltoall dispatcher") || row.noted("token-dispatcher-type=alltoall") ||
      row.noted("alltoall fallback")) {
    profile.dispatch_once = false;
  }
  if (row.noted("natural routing") || row.noted("real data")) {
    profile.balanced_experts = false;
  }
}

}  // namespace

TimeProfile measured_time(const MeasuredRow& row, const TimeProfile& today) {
  const std::string group = lower(row.text("group"));
  TimeProfile profile = today;
  const auto* const known =
      std::ranges::find_if(groups, [&](const GroupProfile& entry) { return group.starts_with(entry.group); });
  if (known != groups.end()) {
    profile = known->make();
  }
  if (group.starts_with("sc21")) {
    note_early_zero(row, profile);
  }
  note_attention(row, profile);
  note_kernels(row, profile);
  note_overlaps(row, profile);
  return profile;
}

TimeProfile vtrain_time() {
  TimeProfile profile = megatron_deepspeed();
  profile.pads_uncut_vocabulary = false;
  profile.score_passes = 0.8;  // no dropout
  profile.loss_bytes = 16;     // logits in 16 bits
  profile.gradient_accumulation_fused = true;
  profile.clips_gradients = false;
  profile.starts_idle = true;
  return profile;
}

}  // namespace ndmesh::plan
