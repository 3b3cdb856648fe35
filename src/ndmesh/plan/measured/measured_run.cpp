#include "ndmesh/plan/measured/measured_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ndmesh/base/text.h"
#include "ndmesh/mesh/rules.h"
#include "ndmesh/model/config.h"

namespace ndmesh::plan {
namespace {

std::int64_t zero_stage(const MeasuredRow& row) {
  constexpr std::int64_t most = 3;
  if (const auto stage = row.whole("zero_stage", 0)) {
    if (*stage > most) row.problems().add(fmt::format("zero_stage is {}; allowed: 0 to 3", *stage));
    return std::min(*stage, most);
  }
  return row.text("distributed_optimizer") == "0" ? 0 : 1;
}

/// Megatron's own default is the size of tp, its recipes' is 1.
std::int64_t expert_tensor_parallel(const MeasuredRow& row, std::int64_t tp) {
  const std::string notes = lower(row.text("notes"));
  for (const std::string_view key : {"expert tp", "expert-tensor-parallel-size=", "etp="}) {
    if (const auto size = number_behind(notes, key); size && *size > 0) return *size;
  }
  return row.text("group").starts_with("megatron-functional") ? tp : 1;
}

/// Ranks that share optimizer states where they are fewer than all data-parallel ranks ("zero1 group of 8").
std::optional<std::int64_t> shard_group(const MeasuredRow& row) {
  const std::string notes = lower(row.text("notes"));
  if (const auto ranks = number_behind(notes, "zero1 group of")) return ranks;
  return number_behind(notes, "optimizer state sharded over");
}

/// A stage above 0 without shard ranks shares over all data-parallel ranks.
void set_data_parallel(const MeasuredRow& row, Candidate& candidate) {
  mesh::MeshSizes& mesh = candidate.mesh;
  candidate.zero = zero_stage(row);
  mesh.dp_replicate = row.whole("dp_replicate").value_or(1);
  mesh.dp_shard = row.whole("dp_shard").value_or(1);
  if (!row.has("dp_replicate") && !row.has("dp_shard"))
    row.problems().add("dp_replicate and dp_shard are missing");
  if (candidate.zero > 0 && mesh.dp_shard == 1 && !row.has("dp_shard"))
    std::swap(mesh.dp_shard, mesh.dp_replicate);
  const std::int64_t group = shard_group(row).value_or(0);
  if (candidate.zero > 0 && mesh.dp_replicate == 1 && group > 1 && mesh.dp_shard % group == 0) {
    mesh.dp_replicate = mesh.dp_shard / group;
    mesh.dp_shard = group;
  }
  if (candidate.zero == 0) {
    if (mesh.dp_shard > 1) mesh.dp_replicate *= mesh.dp_shard;
    mesh.dp_shard = 1;
  }
}

/// World, and what divides it: without these, products of sizes may not fit into 64 bits.
bool check_product(const MeasuredRow& row, const mesh::MeshSizes& mesh) {
  const std::int64_t gpus = row.whole("gpus").value_or(mesh.world());
  if (mesh.world() != gpus) {
    row.problems().add(fmt::format("{} has {} ranks; gpus is {}", mesh.name(), mesh.world(), gpus));
    return false;
  }
  if (row.has("gpus") && mesh.stage_ranks() % (mesh.ep * mesh.etp) != 0) {
    row.problems().add(
        fmt::format("ep {} does not divide the {} ranks of a stage", mesh.ep, mesh.stage_ranks()));
  }
  return true;
}

void set_schedule(const MeasuredRow& row, Candidate& candidate) {
  const std::string name = lower(row.text("pp_schedule"));
  candidate.chunks = row.whole("vpp").value_or(1);
  if (candidate.mesh.pp == 1) {
    candidate.chunks = 1;
    return;
  }
  if (name == "zb-1p" || name == "zb-h1") {
    candidate.schedule = schedule::Kind::zb_h1;
  } else if (contains(name, "zb") || contains(name, "dualpipe")) {
    row.problems().add(fmt::format("pp_schedule {} is not modelled", shown(row.text("pp_schedule"))));
  } else if (contains(name, "gpipe")) {
    candidate.schedule = schedule::Kind::gpipe;
  } else if (candidate.chunks > 1) {
    candidate.schedule = schedule::Kind::interleaved;
  } else if (contains(name, "interleaved")) {
    row.problems().add("vpp is missing, and the schedule is interleaved");
  }
}

/// "5 of 60 layers checkpointed" leaves the others whole.
job::Recompute partial_recompute(const MeasuredRow& row, const model::ModelSpec& model) {
  const std::string notes = lower(row.text("notes"));
  const auto count = number_before(notes, "of " + std::to_string(model.layers) + " layers");
  if (!count || *count < 1 || model.layers % *count != 0) {
    row.problems().add("which layers are recomputed is not stated in a form that is modelled");
    return {};
  }
  return {job::Recompute::Policy::every, model.layers / *count, 0};
}

job::Recompute recompute(const MeasuredRow& row, const model::ModelSpec& model) {
  using Policy = job::Recompute::Policy;
  const std::string name = lower(row.text("recompute"));
  if (name.empty())
    return {row.noted("config default op-level selective") ? Policy::selective : Policy::none, 1, 0};
  if (name == "none") return {};
  if (name == "full") return {Policy::full, 1, 0};
  if (name == "selective") {
    if (row.noted("selective AC every other layer")) return {Policy::every, 2, 0};
    return {Policy::selective, 1, 0};
  }
  if (name == "partial") return partial_recompute(row, model);
  row.problems().add(fmt::format("recompute is {}; allowed: none, selective, full, partial", shown(name)));
  return {};
}

/// The micro-batch: as stated, or what the batch leaves when each batch rank has one sequence only.
std::int64_t micro_batch(const MeasuredRow& row, const Candidate& candidate) {
  if (const auto micro = row.whole("micro_batch")) return *micro;
  const std::int64_t ranks = candidate.mesh.batch_ranks();
  if (row.whole("global_batch").value_or(0) != ranks) row.needed("micro_batch");
  return 1;
}

void check_batch(const MeasuredRow& row, const Candidate& candidate) {
  const std::int64_t batch = row.needed("global_batch");
  const std::int64_t part = candidate.micro * candidate.mesh.batch_ranks();
  if (row.has("global_batch") && batch % part != 0) {
    row.problems().add(
        fmt::format("global_batch {} is no multiple of micro-batch times batch ranks {}", batch, part));
    return;
  }
  check_actions(row, batch / part, candidate.mesh.pp * candidate.chunks);
}

job::Offload offload(const MeasuredRow& row) {
  if (row.noted("activation offload") || row.noted("activation-offload") ||
      row.noted("activation CPU offload") || row.noted("offload-residual")) {
    row.problems().add("offload of activations is not modelled");
  }
  const bool optimizer = row.noted("optimizer state CPU offload fraction 100%") ||
                         row.noted("optimizer CPU offload used") ||
                         row.noted("--offload-opt-m --offload-opt-v");
  return optimizer ? job::Offload::optimizer : job::Offload::none;
}

/// FLOPs of one step by the count behind tflops_per_gpu; attention full unless it says causal, the layers'
/// forward twice when it counts full recompute.
double counted_flops(const MeasuredRow& row, const Problem& problem) {
  const std::string kind = lower(row.text("flop_kind"));
  const model::FlopsPerToken flops = model::flops_per_token(problem.model, problem.seq_len);
  const double head = 6.0 * static_cast<double>(problem.model.hidden * problem.model.vocab);
  const double attention = flops.attention * (contains(kind, "causal") ? 1 : 2);
  const double layers = flops.weights - head + attention;
  const double per_token = head + layers * (contains(kind, "recompute") ? 4.0 / 3 : 1);
  return per_token * static_cast<double>(problem.global_batch) * static_cast<double>(problem.seq_len);
}

}  // namespace

Candidate measured_candidate(const MeasuredRow& row, const model::ModelSpec& model) {
  Candidate candidate;
  mesh::MeshSizes& mesh = candidate.mesh;
  mesh.tp = row.whole("tp").value_or(1);
  mesh.pp = row.whole("pp").value_or(1);
  mesh.cp = row.whole("cp").value_or(1);
  mesh.ep = model.experts ? row.whole("ep").value_or(1) : 1;
  mesh.etp = model.experts ? expert_tensor_parallel(row, mesh.tp) : 1;
  set_data_parallel(row, candidate);
  if (!check_product(row, mesh)) return candidate;
  candidate.micro = micro_batch(row, candidate);
  set_schedule(row, candidate);
  check_batch(row, candidate);
  candidate.recompute = recompute(row, model);
  candidate.offload = offload(row);
  candidate.sequence_parallel = mesh.tp > 1 && row.flag("sequence_parallel");
  candidate.reshard = !row.noted("SHARD_GRAD_OP") && !row.noted("reshard_after_forward never");
  if (candidate.zero == 3 && row.noted("SHARD_GRAD_OP")) candidate.zero = 2;
  return candidate;
}

void check_mesh(const MeasuredRow& row, const Measurement& measurement) {
  mesh::RuleInput input = mesh::rule_input(measurement.problem.model, measurement.candidate.mesh);
  input.seq_len = measurement.problem.seq_len;
  input.global_batch = measurement.problem.global_batch;
  input.micro_batch = measurement.candidate.micro;
  input.chunks = measurement.candidate.chunks;
  if (input.chunks > 1) input.layers += 2;  // some schedules count embedding and head as a layer each
  input.interleaving = mesh::Interleaving::flexible;
  if (measurement.problem.context == job::ContextKind::alltoall) input.context = mesh::ContextSplit::heads;
  row.problems().add_all(mesh::broken_rules(input));
}

void check_actions(const MeasuredRow& row, std::int64_t micro_batches, std::int64_t stages) {
  constexpr std::int64_t most_actions = 1'000'000;
  if (micro_batches > most_actions / stages) {
    row.problems().add("its schedule has more than a million actions");
  }
}

std::optional<double> measured_seconds(const MeasuredRow& row, const Problem& problem) {
  if (const auto seconds = row.positive("step_time_s")) return seconds;
  const double tokens = static_cast<double>(problem.global_batch) * static_cast<double>(problem.seq_len);
  const auto devices = static_cast<double>(problem.cluster.devices());
  if (const auto rate = row.positive("tokens_per_s_per_gpu")) return tokens / *rate / devices;
  if (const auto tera = row.positive("tflops_per_gpu"))
    return counted_flops(row, problem) / *tera / 1e12 / devices;
  return std::nullopt;
}

std::optional<MeasuredMemory> measured_memory(const MeasuredRow& row) {
  constexpr double most_gib = 1e6;
  const auto gib = row.positive("peak_mem_gib");
  if (!gib || *gib > most_gib) return std::nullopt;
  const std::string kind = lower(row.text("peak_mem_kind"));
  const std::string scope = lower(row.text("mem_scope"));
  MeasuredMemory memory;
  memory.bytes = static_cast<std::int64_t>(std::llround(*gib * 1024 * 1024 * 1024));
  if (contains(scope, "nvidia-smi"))
    memory.kind = MeasuredMemory::Kind::device;
  else if (kind == "allocated")
    memory.kind = MeasuredMemory::Kind::allocated;
  if (scope.starts_with("last rank")) memory.scope = MeasuredMemory::Scope::last;
  if (scope.starts_with("rank 0")) memory.scope = MeasuredMemory::Scope::first;
  return memory;
}

}  // namespace ndmesh::plan
