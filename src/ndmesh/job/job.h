#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ndmesh/base/dtype.h"
#include "ndmesh/job/serving_keys.h"
#include "ndmesh/mesh/mesh.h"
#include "ndmesh/model/model_spec.h"
#include "ndmesh/schedule/schedule.h"

namespace ndmesh::job {

/// A job file as plain values: one struct a section, one member a key. Every key is declared once in
/// job/fields.cpp with its type, default, range and help; parser, overrides, `ndmesh help KEY` and the
/// reference page follow from there.
struct ModelSection {
  std::string path;    ///< Hugging Face folder
  std::string preset;  ///< or a preset with fresh weights
  std::string size;    ///< or only a size, "70B", of which a plan estimates the shape
};
enum class DataFormat { text, u16, bin };
struct DataSection {
  std::vector<std::string> files;
  DataFormat format = DataFormat::text;
  bool shuffle = true;
  std::vector<std::string> eval_files;  ///< for the evaluation loss
};
struct BatchSection {
  std::int64_t global = 8;  ///< sequences of one step
  std::int64_t micro = 1;   ///< sequences of one forward on one batch rank
  std::int64_t seq_len = 256;
};
enum class Offload { none, optimizer, all };
struct ShardSection {
  std::int64_t zero = 3;
  std::int64_t unit_blocks = 1;  ///< shard.unit: blocks gathered at a time; 0: a part of one
  bool reshard = true;
  std::int64_t prefetch = 1;
  std::int64_t gathered_limit = 0;  ///< bytes; 0: none
  Offload offload = Offload::none;
};
enum class OptimizerName { adamw, sgd, muon };
/// recompute.policy: what forward does not keep and backward computes again.
struct Recompute {
  enum class Policy : std::uint8_t {
    none,
    selective,  ///< what is cheap to compute again for the bytes it frees (the runtime profile says what)
    full,       ///< everything but the block's input
    every,      ///< full, for every `layers`-th block
    budget,     ///< as many blocks as it takes to stay under `bytes` of activations
  };
  Policy policy = Policy::none;
  std::int64_t layers = 1;
  std::int64_t bytes = 0;
  bool operator==(const Recompute&) const = default;
};
struct OptimizerSection {
  OptimizerName name = OptimizerName::adamw;
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.95;  ///< sgd, muon
  bool nesterov = true;    ///< sgd, muon
};
/// Means nothing while tp_size is 1.
struct TensorSection {
  bool sequence_parallel = true;  ///< tokens of norms and residual sums are cut over tp
};
/// pipeline.layers: how many layers each stage gets.
struct StageLayers {
  enum class Policy : std::uint8_t {
    even,    ///< as many each, the first ones one more
    cost,    ///< so that the slowest stage is as fast as it can be; the head counts
    memory,  ///< so that the fullest pipeline rank needs as few bytes as it can
    given,   ///< `layers`
  };
  Policy policy = Policy::even;
  std::vector<std::int64_t> layers;
  bool operator==(const StageLayers&) const = default;
};
/// Means nothing while pp_size is 1.
struct PipelineSection {
  schedule::Kind schedule = schedule::Kind::one_f_one_b;
  /// The file that pipeline.schedule names instead of a kind, and what it says; else empty.
  std::string file;
  std::shared_ptr<const schedule::Schedule> list;
  std::int64_t chunks = 0;  ///< model chunks of each pipeline rank; 0: the fewest that the schedule takes
  StageLayers layers;
  bool measure = false;  ///< cost is what layers take where the run starts, not what they compute
};
enum class ContextKind { ring, allgather, alltoall, hierarchical };
struct ContextSection {
  ContextKind kind = ContextKind::ring;  ///< means nothing while cp_size is 1
};
struct ExpertSection {
  double skew = 1.0;  ///< tokens of the busiest expert rank over the mean: what a plan counts with
};
struct PrecisionSection {
  bool fp8_products = false;  ///< linear layers compute in 8 bits
  bool bf16_states = false;   ///< optimizer moments in bfloat16
};
struct AdapterSection {
  std::int64_t rank = 0;  ///< of LoRA over a frozen base; 0 trains everything
};
enum class ScheduleKind { constant, linear, cosine };
struct LrScheduleSection {
  ScheduleKind name = ScheduleKind::constant;
  std::int64_t warmup = 0;   ///< steps
  double final_ratio = 0.0;  ///< of the peak, at the last step
};
struct TrainSection {
  std::int64_t steps = 100;
  double clip = 1.0;                ///< global gradient norm; 0 turns clipping off
  std::int64_t eval_every = 0;      ///< steps; 0: never
  std::int64_t eval_batches = 8;    ///< global batches of one evaluation
  std::int64_t loss_chunk = 256;    ///< tokens whose logits exist at a time
  std::vector<std::string> frozen;  ///< patterns of parameter names (job/frozen.h)
};
struct CheckpointSection {
  std::int64_t every = 0;  ///< steps between writes of the model; 0: only at the end
};
struct RunSection {
  std::string transport = "threads";
  std::string device = "cpu";
  std::int64_t threads = 0;  ///< intra-op threads of each rank; 0: cores / local ranks
  std::int64_t seed = 1;
  double setup_limit = 600;  ///< seconds a peer may be late, by phase
  double first_step_limit = 600;
  double step_limit = 300;
  double save_limit = 1800;
};
enum class PlanTask { train, serve };
struct PlanSection {
  PlanTask task = PlanTask::train;
  std::string runtime = "ndmesh";
  double headroom = 0.05;        ///< share of usable device memory left free
  std::int64_t max_batch = 0;    ///< sequences up to which batch.global may grow; 0: it is fixed
  double tokens_per_second = 0;  ///< wanted, of the whole cluster; 0: as fast as it goes
  double tokens = 0;             ///< of the whole training, wanted within `days`
  double days = 0;
  ServingKeys serving;
};
struct DebugSection {
  std::string gradients;   ///< file for the first step's gradients
  std::int64_t trace = 0;  ///< steps whose trace is written
};

struct Job {
  std::string name;  ///< of the run: the file's name without extension
  ModelSection model;
  DataSection data;
  BatchSection batch;
  mesh::MeshSizes mesh;
  bool dp_shard_auto = false;  ///< mesh.dp_shard_size: auto; mesh.dp_shard is then 1
  mesh::AxisOrder mesh_order = mesh::default_order;
  ShardSection shard;
  TensorSection tensor;
  PipelineSection pipeline;
  ContextSection context;
  ExpertSection expert;
  Recompute recompute;
  bool offload_activations =
      false;                     ///< recompute.offload: what forward keeps for backward waits in host memory
  DType dtype = DType::float32;  ///< precision.dtype
  PrecisionSection precision;
  AdapterSection adapter;
  OptimizerSection optimizer;
  LrScheduleSection lr_schedule;
  TrainSection train;
  CheckpointSection checkpoint;
  RunSection run;
  std::string cluster;  ///< the key's value as YAML: short form, mapping or file name; empty: this machine
  PlanSection plan;
  DebugSection debug;

  std::vector<std::string> given;  ///< dotted paths that the file or an override set

  bool is_given(std::string_view key) const;
};

/// Reads a job file and lays overrides ("mesh.tp_size=2", "cluster=8xH100-SXM", "cluster.nodes=4") over it.
/// Relative paths inside the file are relative to the working directory. Everything that is wrong comes in
/// one RequestError: unknown keys (with the nearest), types, ranges, values of parts that are not built yet
/// (named as such), keys given twice.
Job read_job(const std::filesystem::path& file, const std::vector<std::string>& overrides);
Job parse_job(const std::string& yaml, const std::string& source, const std::vector<std::string>& overrides);

/// The job as resolved: every key with its value, as YAML that read_job reads back to the same job.
std::string resolved_yaml(const Job& job);

/// One key for help and reference page.
struct KeyHelp {
  std::string key;      ///< dotted path
  std::string type;     ///< integer, number, text, list of texts, yes/no, one of ...
  std::string initial;  ///< default as it would be written
  std::string range;
  std::string help;
};
std::vector<KeyHelp> all_keys();
/// One key, or every key of a section. RequestError with the nearest for an unknown one.
std::vector<KeyHelp> help_for(const std::string& key);
/// docs/job-reference.md.
std::string reference_page();

/// The model that the job names: its folder's config.json, its preset, or an estimate of its size.
model::ModelSpec model_of(const Job& job);

/// Everything that `train` (and parity) must refuse, all at once: mesh rules (mesh/rules.h), batch,
/// strategies that are not built, device, data. Nothing is allocated or started before. Returns normally when
/// the job can run.
void check_trainable(const Job& job, const model::ModelSpec& model);

/// One sentence for each given key that only the planner reads, for commands that run.
std::vector<std::string> keys_of_planning(const Job& job);

/// What is allowed and worth a sentence before a run: padding, KV heads that ranks share, uneven stages, and a pipeline
/// that waits for 15 % of a step or more even if all stages take the same time. The job has passed check_trainable.
std::vector<std::string> notes_of(const Job& job, const model::ModelSpec& model);

/// Intra-op threads of each rank: run.threads, or the cores shared out.
std::int64_t threads_per_rank(const Job& job);

/// Micro-batches of a step on each batch rank. The mesh rules have held.
std::int64_t accumulation(const Job& job);

/// The shape of a step's schedule: pipeline section, pp_size and accumulation; that of a file's list is the file's. The
/// mesh rules have held.
schedule::Shape pipeline_shape(const Job& job);
/// The schedule itself. RequestError when there is none of that shape.
schedule::Schedule pipeline_schedule(const Job& job, const schedule::Shape& shape);

}  // namespace ndmesh::job
