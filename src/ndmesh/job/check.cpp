#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"
#include "ndmesh/job/field.h"
#include "ndmesh/job/frozen.h"
#include "ndmesh/job/job.h"
#include "ndmesh/mesh/rules.h"
#include "ndmesh/model/config.h"
#include "ndmesh/schedule/simulate.h"

namespace ndmesh::job {
namespace {

constexpr std::int64_t most_ranks = 256;  // threads of one process

mesh::RuleInput rule_input_of(const Job& job, const model::ModelSpec& model) {
  mesh::RuleInput input = mesh::rule_input(model, job.mesh);
  input.global_batch = job.batch.global;
  input.micro_batch = job.batch.micro;
  input.seq_len = job.batch.seq_len;
  input.zero = job.shard.zero;
  input.context =
      job.context.kind == ContextKind::alltoall ? mesh::ContextSplit::heads : mesh::ContextSplit::sequence;
  input.interleaving = schedule::Interleaving::flexible;
  const schedule::Kind kind = job.pipeline.schedule;
  if (kind == schedule::Kind::interleaved && job.mesh.pp > 1 && !job.pipeline.list) {
    input.chunks = std::max(job.pipeline.chunks, schedule::least_chunks(kind));
  }
  return input;
}

class Check {
 public:
  Check(const Job& job, const model::ModelSpec& model) : job_(job), model_(model) {}

  void run() {
    check_rules();
    check_axes();
    check_model();
    check_keys();
    check_offload();
    check_states();
    problems_.add_all(frozen_problems(job_, model_));
    check_window();
    check_data();
    problems_.raise();
  }

 private:
  void check_rules() {
    const std::vector<std::string> broken = mesh::broken_rules(rule_input_of(job_, model_));
    problems_.add_all(broken);
    if (broken.empty()) {  // micro-batches are a whole number
      check_pipeline(pipeline_shape(job_));
    }
  }

  void check_given_layers(const schedule::Shape& shape) {
    const StageLayers& cut = job_.pipeline.layers;
    if (shape.ranks == 1 || cut.policy != StageLayers::Policy::given) {
      return;
    }
    if (static_cast<std::int64_t>(cut.layers.size()) != shape.stages()) {
      problems_.add(
          fmt::format("pipeline.layers lists {} stages; mesh.pp_size {} x pipeline.chunks {} is {} stages",
                      cut.layers.size(), shape.ranks, shape.chunks, shape.stages()));
    }
    const std::int64_t sum = std::accumulate(cut.layers.begin(), cut.layers.end(), std::int64_t{0});
    if (sum != model_.layers) {
      problems_.add(
          fmt::format("pipeline.layers [{}] is {} layers; the model has {}: each belongs to one stage",
                      fmt::join(cut.layers, ", "), sum, model_.layers));
    }
  }

  /// Of a file: that it is one of this mesh and batch, and can run.
  void check_list(const schedule::Schedule& list) {
    const std::string& file = job_.pipeline.file;
    if (list.shape.ranks != job_.mesh.pp || list.shape.micro_batches != accumulation(job_)) {
      problems_.add(
          fmt::format("pipeline.schedule {} is for {} ranks and {} micro-batches; mesh.pp_size is {}, and "
                      "batch.global {} makes "
                      "{} micro-batches",
                      file, list.shape.ranks, list.shape.micro_batches, job_.mesh.pp, job_.batch.global,
                      accumulation(job_)));
    }
    for (const std::string& defect : schedule::defects(list)) {
      problems_.add(fmt::format("pipeline.schedule {}: {}", file, defect));
    }
  }

  void check_measure() {
    if (job_.pipeline.measure && job_.pipeline.layers.policy != StageLayers::Policy::cost) {
      problems_.add(fmt::format(
          "pipeline.measure true with pipeline.layers {}: only stages by cost are measured; allowed: "
          "pipeline.layers cost, or pipeline.measure false",
          value_of("pipeline.layers")));
    }
  }

  void check_pipeline(const schedule::Shape& shape) {
    check_given_layers(shape);
    check_measure();
    if (job_.pipeline.list && job_.mesh.pp > 1) {
      check_list(*job_.pipeline.list);
    } else {
      problems_.add_all(schedule::problems_of(shape));
    }
    if (shape.stages() > model_.layers) {
      problems_.add(
          fmt::format("mesh.pp_size {} x pipeline.chunks {} is {} stages; the model has {} layers; allowed: "
                      "no more stages than layers",
                      shape.ranks, shape.chunks, shape.stages(), model_.layers));
    }
  }

  void check_axes() {
    const mesh::MeshSizes& sizes = job_.mesh;
    refuse_axis("mesh.cp_size", sizes.cp, "context parallelism");
    refuse_axis("mesh.ep_size", sizes.ep, "expert parallelism");
    refuse_axis("mesh.etp_size", sizes.etp, "expert parallelism");
    if (sizes.world() > most_ranks) {
      problems_.add(fmt::format(
          "mesh {} is {} ranks; run.transport threads runs all of them in this process; allowed: at most {}",
          sizes.name(), sizes.world(), most_ranks));
    }
    check_tensor();
  }

  void check_tensor() {
    if (job_.mesh.tp == 1) {
      return;
    }
    if (job_.optimizer.name == OptimizerName::muon) {
      problems_.add(fmt::format(
          "optimizer.name muon with mesh.tp_size {}: its products of whole matrices are not built for "
          "matrices that tp cuts; allowed: adamw, sgd, or mesh.tp_size 1",
          job_.mesh.tp));
    }
  }

  /// What planner and checkpoint know, and the runtime does not yet.
  void check_model() { problems_.add_all(model::unrunnable_reasons(model_)); }

  /// Values that a plan takes and a run does not yet.
  void check_keys() {
    refuse_key("mesh.dp_shard_size", job_.dp_shard_auto, "auto", "a number");
    refuse_key("precision.fp8_products", job_.precision.fp8_products, "true", "false");
    refuse_key("adapter.rank", job_.adapter.rank > 0, value_of("adapter.rank"), "0");
  }

  void check_offload() {
    if (job_.shard.offload != Offload::all) {
      return;
    }
    if (job_.shard.zero < 3) {
      problems_.add(fmt::format(
          "shard.offload all with shard.zero {}: below zero 3 parameters never leave the device; allowed: "
          "shard.zero 3, or shard.offload none, optimizer",
          job_.shard.zero));
    }
    if (job_.optimizer.name == OptimizerName::muon) {
      problems_.add(
          "shard.offload all with optimizer.name muon: its products of whole matrices are not built for "
          "gradients in host memory; allowed: adamw, sgd, or shard.offload none, optimizer");
    }
  }

  std::string value_of(std::string_view key) const { return find_field(key)->get(job_); }

  void refuse_key(const std::string& key, bool refused, const std::string& value,
                  const std::string& allowed) {
    if (refused) {
      problems_.add(fmt::format("{} {} is not built yet for running; allowed: {}", key, value, allowed));
    }
  }

  void refuse_axis(const std::string& key, std::int64_t size, const std::string& strategy) {
    if (size > 1) {
      problems_.add(
          fmt::format("{} is {}: {} is not built yet for running; allowed: 1", key, size, strategy));
    }
  }

  /// A bfloat16 moment of which a step takes less than half a unit in the last place never decays.
  void check_states() {
    if (!job_.precision.bf16_states) {
      return;
    }
    const OptimizerSection& o = job_.optimizer;
    const bool two = o.name != OptimizerName::sgd;
    const bool one = o.name != OptimizerName::adamw;
    refuse_decay("optimizer.betas[0]", two ? o.beta1 : 0);
    refuse_decay("optimizer.betas[1]", two ? o.beta2 : 0);
    refuse_decay("optimizer.momentum", one ? o.momentum : 0);
  }

  void refuse_decay(const std::string& key, double decay) {
    constexpr double most = 0.99;
    if (decay > most) {
      problems_.add(fmt::format(
          "{} is {}: with precision.bf16_states so slow a decay is lost in rounding (bfloat16 has 8 bits); "
          "allowed: at most {}, or precision.bf16_states false",
          key, decay, most));
    }
  }

  void check_window() {
    if (model_.sliding_window && *model_.sliding_window < job_.batch.seq_len) {
      problems_.add(fmt::format(
          "the model's sliding_window {} is shorter than batch.seq_len {}: windowed attention is not "
          "built yet; allowed: batch.seq_len up to {}",
          *model_.sliding_window, job_.batch.seq_len, *model_.sliding_window));
    }
  }

  void check_data() {
    if (job_.data.files.empty()) {
      problems_.add("data.files names no file; allowed: one or more");
    }
    if (job_.train.eval_every > 0 && job_.data.eval_files.empty()) {
      problems_.add(
          fmt::format("train.eval_every is {}, but data.eval_files names no file", job_.train.eval_every));
    }
    if (job_.data.format == DataFormat::text && !model_.byte_tokens) {
      problems_.add(
          "data.format text makes every byte a token, which this model does not know; allowed: u16 or bin "
          "with "
          "the model's own tokens, or a byte model (model.preset llama-bytes-5m, or config.json with "
          "\"ndmesh_tokens\": \"bytes\")");
    }
  }

  const Job& job_;
  const model::ModelSpec& model_;
  Problems problems_;
};

}  // namespace

model::ModelSpec model_of(const Job& job) {
  if (!job.model.path.empty()) {
    return model::spec_from_folder(job.model.path);
  }
  if (!job.model.preset.empty()) {
    return model::preset(job.model.preset);
  }
  if (!job.model.size.empty()) {
    return model::estimate(job.model.size);
  }
  throw RequestError("model.path, model.preset or model.size must be given; presets: " +
                     join(model::preset_names()));
}

std::vector<std::string> keys_of_planning(const Job& job) {
  std::vector<std::string> sentences;
  for (const std::string& key : job.given) {
    const std::string section = key.substr(0, key.find('.'));
    if (section == "cluster" || section == "plan") {
      sentences.push_back(key + " is read by planning only, not by this command");
    }
  }
  return sentences;
}

std::vector<std::string> notes_of(const Job& job, const model::ModelSpec& model) {
  constexpr double large_bubble = 0.15;
  mesh::RuleInput input = rule_input_of(job, model);
  input.global_batch = 0;  // its wait is that of one kind of schedule; any kind follows
  if (job.pipeline.layers.policy != StageLayers::Policy::even) {
    input.layers = 0;
  }
  std::vector<std::string> notes = mesh::rule_notes(input);
  const schedule::Shape shape = pipeline_shape(job);
  if (shape.ranks > 1) {
    const std::vector<schedule::StageSeconds> equal(static_cast<std::size_t>(shape.stages()), {1, 1, 1, 0});
    const double bubble = schedule::simulate_list(pipeline_schedule(job, shape), equal).bubble();
    if (bubble >= large_bubble) {
      notes.push_back(
          fmt::format("mesh.pp_size {} with {} micro-batches: the pipeline waits for {:.1f} % of a step; "
                      "more of them (a larger "
                      "batch.global, a smaller batch.micro) wait less",
                      shape.ranks, shape.micro_batches, 100 * bubble));
    }
  }
  return notes;
}

void check_trainable(const Job& job, const model::ModelSpec& model) {
  Check(job, model).run();
}

std::int64_t threads_per_rank(const Job& job) {
  if (job.run.threads > 0) {
    return job.run.threads;
  }
  const std::int64_t world = mesh::Mesh(job.mesh, job.mesh_order).world();
  return std::max<std::int64_t>(1, std::thread::hardware_concurrency() / world);
}

std::int64_t accumulation(const Job& job) {
  return job.batch.global / (job.batch.micro * job.mesh.batch_ranks());
}

schedule::Shape pipeline_shape(const Job& job) {
  if (job.pipeline.list && job.mesh.pp > 1) {
    return job.pipeline.list->shape;
  }
  schedule::Shape shape = {job.pipeline.schedule, job.mesh.pp, 1, accumulation(job)};
  if (shape.ranks > 1) {
    const std::int64_t fewest = schedule::least_chunks(shape.kind);
    shape.chunks = job.pipeline.chunks > 0 ? job.pipeline.chunks : fewest;
  }
  return shape;
}

schedule::Schedule pipeline_schedule(const Job& job, const schedule::Shape& shape) {
  if (!job.pipeline.list || job.mesh.pp == 1) {
    return schedule::make_schedule(shape);
  }
  if (job.pipeline.list->shape != shape) {
    throw RequestError(fmt::format("pipeline.schedule {} has {} micro-batches; a step has {}",
                                   job.pipeline.file, job.pipeline.list->shape.micro_batches,
                                   shape.micro_batches));
  }
  return *job.pipeline.list;
}

}  // namespace ndmesh::job
