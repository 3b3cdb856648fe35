#include "ndmesh/plan/search/question.h"

#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"
#include "ndmesh/base/units.h"
#include "ndmesh/job/frozen.h"
#include "ndmesh/plan/profile/memory_profiles.h"

namespace ndmesh::plan {
namespace {

constexpr std::int64_t usual_seq_len = 4096;
constexpr double seconds_per_day = 86400;

class Asking {
 public:
  Asking(const job::Job& job, const model::ModelSpec& model, const cluster::Cluster& cluster) : job_(job) {
    question_.problem.model = model;
    question_.problem.cluster = cluster;
  }

  TrainingQuestion run() {
    set_problem();
    set_batch();
    hold();
    set_wishes();
    if (!problems_.empty()) {
      problems_.add_all(broken_by(problem(), question_.held));
    }
    problems_.raise();
    return std::move(question_);
  }

 private:
  Problem& problem() { return question_.problem; }

  void assume(std::string sentence) { question_.assumed.push_back(std::move(sentence)); }

  void set_problem() {
    Problem& p = problem();
    p.profile = profile(job_.plan.runtime);
    if (job_.plan.runtime == "ndmesh" && !p.cluster.device.is_host()) {
      p.profile.memory = on_cuda(p.profile.memory);
    }
    set_units(p.profile.memory);
    if (p.model.estimated()) {
      assume(fmt::format(
          "only the model's size is known: {} parameters in an estimated shape of {} layers, hidden {}",
          grouped(p.model.parameter_count()), p.model.layers, p.model.hidden));
    }
    if (job_.cluster.empty()) {
      assume(fmt::format("cluster is not given: planned for this machine, {} devices", p.cluster.devices()));
    }
    for (const std::string& note : p.cluster.notes) {
      assume(note);
    }
    p.precision = {job_.dtype, job_.precision.fp8_products, job_.precision.bf16_states};
    if (!job_.is_given("precision.dtype") && p.cluster.device.bf16_flops > p.cluster.device.fp32_flops) {
      p.precision.compute = DType::bfloat16;
      assume(p.cluster.device.architecture == "Volta"
                 ? "precision.dtype is not given: planned for 16 bits, which this device has as float16 only"
                 : "precision.dtype is not given: planned for bfloat16, which the device computes fastest");
    }
    p.optimizer = job_.optimizer.name;
    p.momentum = job_.optimizer.momentum > 0;
    p.frozen = job_.train.frozen;
    problems_.add_all(job::frozen_problems(job_, p.model));
    p.adapter = {job_.adapter.rank};
    p.headroom = job_.plan.headroom;
    p.expert_skew = job_.expert.skew;
    p.checkpoint_every = job_.checkpoint.every;
    const bool chunks_loss = job_.plan.runtime == "ndmesh" || job_.is_given("train.loss_chunk");
    p.loss_chunk = chunks_loss ? job_.train.loss_chunk : 0;
    p.context = job_.is_given("context.kind") ? job_.context.kind : p.profile.support.contexts.front();
  }

  /// How much is gathered at a time, which only ndmesh lets a job say.
  void set_units(MemoryProfile& memory) {
    if (job_.plan.runtime == "ndmesh") {
      memory.unit_blocks = job_.shard.unit_blocks;
      memory.gathered_units = 1 + job_.shard.prefetch;
      memory.gathered_limit = job_.shard.gathered_limit;
      return;
    }
    for (const char* key : {"shard.unit", "shard.prefetch", "shard.gathered_limit"}) {
      if (job_.is_given(key)) {
        problems_.add(fmt::format("{} is for plan.runtime ndmesh; {} has its own rule; allowed: leave it out",
                                  key, job_.plan.runtime));
      }
    }
  }

  void set_batch() {
    Problem& p = problem();
    p.list = pipeline_list(job_.pipeline);
    p.layers = job_.pipeline.layers;
    p.seq_len = job_.batch.seq_len;
    if (!job_.is_given("batch.seq_len")) {
      const std::int64_t most = p.model.max_positions > 0 ? p.model.max_positions : usual_seq_len;
      p.seq_len = std::min(usual_seq_len, most);
      assume(fmt::format("batch.seq_len is not given: planned for {} tokens", p.seq_len));
    }
    p.global_batch = job_.batch.global;
    if (!job_.is_given("batch.global")) {
      assume_batch();
    }
    question_.max_batch = std::max(p.global_batch, job_.plan.max_batch);
    if (job_.plan.max_batch > 0 && job_.plan.max_batch < p.global_batch) {
      problems_.add(fmt::format("plan.max_batch: {} is below batch.global {}; allowed: 0, or {} and more",
                                job_.plan.max_batch, p.global_batch, p.global_batch));
    }
  }

  void assume_batch() {
    Problem& p = problem();
    if (p.list.schedule) {
      const schedule::Shape& shape = p.list.schedule->shape;
      const std::int64_t ranks = std::max<std::int64_t>(1, p.cluster.devices() / shape.ranks);
      p.global_batch = shape.micro_batches * ranks * job_.batch.micro;
      assume(fmt::format(
          "batch.global is not given: planned for {} sequences, {} for each of the {} micro-batches "
          "of {} on {} pipelines",
          p.global_batch, job_.batch.micro, shape.micro_batches, p.list.file, ranks));
      return;
    }
    p.global_batch = std::max(job_.batch.global, p.cluster.devices());
    assume(fmt::format(
        "batch.global is not given: planned for {} sequences, one for each device and at least {}",
        p.global_batch, job_.batch.global));
  }

  template <typename Value>
  void hold_if_given(std::string_view key, std::optional<Value>& held, const Value& value) {
    if (job_.is_given(key)) {
      held = value;
    }
  }

  void hold() {
    Held& held = question_.held;
    for (const mesh::Axis axis : mesh::all_axes) {
      hold_if_given(fmt::format("mesh.{}_size", mesh::name_of(axis)), held.size(axis), job_.mesh.size(axis));
    }
    hold_if_given("mesh.ep_size", held.ep, job_.mesh.ep);
    hold_if_given("mesh.etp_size", held.etp, job_.mesh.etp);
    if (job_.dp_shard_auto) {
      held.dp_shard.reset();
      held.dp_replicate = job_.mesh.dp_replicate;
    }
    hold_if_given("mesh.order", held.order, job_.mesh_order);
    hold_if_given("batch.micro", held.micro, job_.batch.micro);
    if (!job_.pipeline.list) {
      hold_if_given("pipeline.schedule", held.schedule, job_.pipeline.schedule);
    }
    if (job_.pipeline.chunks > 0) {
      hold_if_given("pipeline.chunks", held.chunks, job_.pipeline.chunks);
    }
    hold_if_given("shard.zero", held.zero, job_.shard.zero);
    hold_if_given("shard.reshard", held.reshard, job_.shard.reshard);
    hold_if_given("recompute.policy", held.recompute, job_.recompute);
    held.offload = job_.shard.offload;
    held.offload_activations = job_.offload_activations;
    held.sequence_parallel = job_.tensor.sequence_parallel;
  }

  void set_wishes() {
    const job::PlanSection& plan = job_.plan;
    if ((plan.days > 0) != (plan.tokens > 0)) {
      problems_.add(fmt::format("plan.tokens {} and plan.days {} need each other; allowed: both, or neither",
                                plan.tokens, plan.days));
    }
    const double within = plan.days > 0 ? plan.tokens / (plan.days * seconds_per_day) : 0;
    question_.tokens_per_second = std::max(plan.tokens_per_second, within);
  }

  const job::Job& job_;
  Problems problems_;
  TrainingQuestion question_;
};

}  // namespace

TrainingQuestion training_question(const job::Job& job, const model::ModelSpec& model,
                                   const cluster::Cluster& cluster) {
  return Asking(job, model, cluster).run();
}

}  // namespace ndmesh::plan
