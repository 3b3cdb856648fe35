#include "ndmesh/job/field.h"

#include <fmt/format.h>

#include "ndmesh/job/field_kinds.h"
#include "ndmesh/job/field_lists.h"
#include "ndmesh/job/names.h"
#include "ndmesh/model/config.h"

namespace ndmesh::job {
namespace {

using mesh::MeshSizes;

constexpr IntegerRange axis_size = {1, 1 << 20};
constexpr IntegerRange sequences = {1, 1 << 30};
constexpr IntegerRange tokens = {1, 1 << 30};
constexpr IntegerRange step_count = {0, 1'000'000'000'000};
constexpr NumberRange seconds = {0, 1e9, true};

Field preset_field() {
  return {"model.preset",
          "text",
          join(model::preset_names()),
          "A known shape with fresh weights",
          [](const Job& job) { return yaml_of(job.model.preset); },
          [](Job& job, const YamlNode& node) {
            const std::string name = text_of(node);
            const std::vector<std::string> names = model::preset_names();
            if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
              refuse(node, join(names) + did_you_mean(name, names));
            }
            job.model.preset = name;
          }};
}

Field size_field() {
  return {"model.size",
          "text",
          "1M to 1000T, as 1.5B or 70B",
          "Only the size of a model, of which a plan estimates the shape",
          [](const Job& job) { return yaml_of(job.model.size); },
          [](Job& job, const YamlNode& node) {
            const std::string size = text_of(node);
            if (!size.empty() && !model::is_size(size)) {
              refuse(node, "1M to 1000T, as 1.5B or 70B");
            }
            job.model.size = size;
          }};
}

Field mesh_order_field() {
  return {"mesh.order",
          "list of texts",
          "each of tp, cp, dp_shard, dp_replicate, pp once",
          "Axes from the fastest-varying rank to the slowest",
          [](const Job& job) {
            std::vector<std::string> names;
            for (const mesh::Axis axis : job.mesh_order) {
              names.emplace_back(mesh::name_of(axis));
            }
            return yaml_of(names);
          },
          [](Job& job, const YamlNode& node) { job.mesh_order = mesh::parse_order(texts_of(node)); }};
}

Field dp_shard_field() {
  return {"mesh.dp_shard_size",
          "integer or auto",
          axis_size.name() + ", auto",
          "Ranks that share one copy of the parameters, each with a batch of its own; auto: what the other "
          "axes leave of the cluster",
          [](const Job& job) { return job.dp_shard_auto ? "auto" : yaml_of(job.mesh.dp_shard); },
          [](Job& job, const YamlNode& node) {
            job.dp_shard_auto = node.kind == YamlNode::Kind::scalar && node.scalar == "auto";
            job.mesh.dp_shard = job.dp_shard_auto ? 1 : integer_of(node, axis_size);
          }};
}

Field betas_field() {
  return {"optimizer.betas",
          "list of 2 numbers",
          "each 0 or more and below 1",
          "Decay of the first and the second moment of adamw",
          [](const Job& job) {
            return fmt::format("[{}, {}]", yaml_of(job.optimizer.beta1), yaml_of(job.optimizer.beta2));
          },
          [](Job& job, const YamlNode& node) {
            const std::vector<double> betas = numbers_of(node, 2, {0, 0.999999999});
            job.optimizer.beta1 = betas[0];
            job.optimizer.beta2 = betas[1];
          }};
}

void append(std::vector<Field>& list, std::vector<Field> more) {
  std::move(more.begin(), more.end(), std::back_inserter(list));
}

std::vector<Field> model_and_data() {
  return {
      text("model.path", "a folder",
           "Hugging Face model folder: config.json and, to start from them, its weights",
           at(&Job::model, &ModelSection::path)),
      preset_field(),
      size_field(),
      texts("data.files", "files, read one after another", "What is trained on",
            at(&Job::data, &DataSection::files)),
      choice<DataFormat>(
          "data.format", {{"text", DataFormat::text}, {"u16", DataFormat::u16}, {"bin", DataFormat::bin}},
          "text: every byte is a token, for byte models; u16: raw 16-bit little-endian tokens; bin: "
          "tokens with llm.c's header",
          at(&Job::data, &DataSection::format), {"jsonl", "megatron"}),
      boolean("data.shuffle",
              "Visit the windows of the files in an order drawn anew each epoch; false: one after another",
              at(&Job::data, &DataSection::shuffle)),
      texts("data.eval_files", "files of the same format", "What the evaluation loss is measured on",
            at(&Job::data, &DataSection::eval_files)),
  };
}

std::vector<Field> batch_and_mesh() {
  return {
      integer("batch.global", sequences, "Sequences of one step, over all ranks",
              at(&Job::batch, &BatchSection::global)),
      integer("batch.micro", {1, 1 << 20}, "Sequences of one forward on one batch rank",
              at(&Job::batch, &BatchSection::micro)),
      integer("batch.seq_len", tokens, "Tokens of one sequence", at(&Job::batch, &BatchSection::seq_len)),
      integer("mesh.dp_replicate_size", axis_size,
              "Replicas, each with a batch of its own and all parameters",
              at(&Job::mesh, &MeshSizes::dp_replicate)),
      dp_shard_field(),
      integer("mesh.tp_size", axis_size, "Ranks that split the matrices and heads",
              at(&Job::mesh, &MeshSizes::tp)),
      integer("mesh.cp_size", axis_size, "Ranks that split the sequence", at(&Job::mesh, &MeshSizes::cp)),
      integer("mesh.pp_size", axis_size, "Pipeline stages", at(&Job::mesh, &MeshSizes::pp)),
      integer("mesh.ep_size", axis_size, "Ranks that split the experts", at(&Job::mesh, &MeshSizes::ep)),
      integer("mesh.etp_size", axis_size, "Ranks that split one expert's matrices",
              at(&Job::mesh, &MeshSizes::etp)),
      mesh_order_field(),
  };
}

std::vector<Field> optimization() {
  return {
      choice<OptimizerName>("optimizer.name",
                            choices_of({OptimizerName::adamw, OptimizerName::sgd, OptimizerName::muon}),
                            "Update rule; muon: for the matrices of blocks, adamw for the rest",
                            at(&Job::optimizer, &OptimizerSection::name), {"adam", "adafactor", "lion"}),
      number("optimizer.lr", {0, 1000}, "Peak learning rate", at(&Job::optimizer, &OptimizerSection::lr)),
      betas_field(),
      number("optimizer.eps", {0, 1, true}, "Added to the root of adamw's second moment",
             at(&Job::optimizer, &OptimizerSection::eps)),
      number("optimizer.weight_decay", {0, 1000},
             "Decay of matrices; norms and biases have none. Times the learning rate, off the values; sgd "
             "adds it, "
             "times the values, to the gradient",
             at(&Job::optimizer, &OptimizerSection::weight_decay)),
      number("optimizer.momentum", {0, 0.999999999},
             "Decay of the moment of sgd and muon; sgd with 0 keeps none",
             at(&Job::optimizer, &OptimizerSection::momentum)),
      boolean("optimizer.nesterov", "sgd and muon look one step ahead along their moment",
              at(&Job::optimizer, &OptimizerSection::nesterov)),
      choice<ScheduleKind>("lr_schedule.name",
                           {{"constant", ScheduleKind::constant},
                            {"linear", ScheduleKind::linear},
                            {"cosine", ScheduleKind::cosine}},
                           "Course of the learning rate after the warm-up",
                           at(&Job::lr_schedule, &LrScheduleSection::name)),
      integer("lr_schedule.warmup", step_count, "Steps over which the learning rate rises from 0",
              at(&Job::lr_schedule, &LrScheduleSection::warmup)),
      number("lr_schedule.final_ratio", {0, 1}, "Learning rate of the last step, as a part of the peak",
             at(&Job::lr_schedule, &LrScheduleSection::final_ratio)),
      integer("train.steps", {1, step_count.most}, "Optimizer updates",
              at(&Job::train, &TrainSection::steps)),
      number("train.clip", {0, 1e9}, "Largest global gradient norm; 0 turns clipping off",
             at(&Job::train, &TrainSection::clip)),
      integer("train.eval_every", step_count, "Steps between evaluations; 0: never",
              at(&Job::train, &TrainSection::eval_every)),
      integer("train.eval_batches", {1, 1 << 30}, "Global batches of one evaluation",
              at(&Job::train, &TrainSection::eval_batches)),
      integer("train.loss_chunk", tokens, "Tokens whose logits exist at a time",
              at(&Job::train, &TrainSection::loss_chunk)),
      texts("train.frozen", "parameter names, * for any characters",
            "Parameters that keep their values: they have no gradient and no optimizer state",
            at(&Job::train, &TrainSection::frozen)),
      integer("checkpoint.every", step_count, "Steps between writes of the model; 0: only at the end",
              at(&Job::checkpoint, &CheckpointSection::every)),
  };
}

std::vector<Field> running() {
  return {
      named("run.transport", {"threads"}, "How ranks talk; threads: all ranks are threads of one process",
            at(&Job::run, &RunSection::transport), {"mpi", "nccl", "meta"}),
      named("run.device", {"cpu"}, "Where tensors live", at(&Job::run, &RunSection::device), {"cuda"}),
      integer("run.threads", {0, 4096}, "Intra-op threads of each rank; 0: cores divided by local ranks",
              at(&Job::run, &RunSection::threads)),
      integer("run.seed", {0, INT64_MAX}, "Seed of initial values and data order",
              at(&Job::run, &RunSection::seed)),
      number("run.setup_limit", seconds, "Seconds a peer may be late during set-up",
             at(&Job::run, &RunSection::setup_limit)),
      number("run.first_step_limit", seconds, "Seconds a peer may be late in the first step",
             at(&Job::run, &RunSection::first_step_limit)),
      number("run.step_limit", seconds, "Seconds a peer may be late in a later step",
             at(&Job::run, &RunSection::step_limit)),
      number("run.save_limit", seconds, "Seconds a peer may be late while the model is written",
             at(&Job::run, &RunSection::save_limit)),
  };
}

std::vector<Field> declare() {
  std::vector<Field> list = model_and_data();
  append(list, batch_and_mesh());
  append(list, strategy_fields());
  append(list, optimization());
  append(list, running());
  append(list, planning_fields());
  append(list, serving_fields());
  list.push_back(text("debug.gradients", "a file",
                      "Write every gradient of the first step, gathered, before clipping, as safetensors",
                      at(&Job::debug, &DebugSection::gradients)));
  list.push_back(integer(
      "debug.trace", {0, 10'000},
      "Steps, from the first, of which trace.json in the run folder shows compute and every collective",
      at(&Job::debug, &DebugSection::trace)));
  return list;
}

}  // namespace

const std::vector<Field>& fields() {
  static const std::vector<Field> list = declare();
  return list;
}

const Field* find_field(std::string_view key) {
  const auto found =
      std::find_if(fields().begin(), fields().end(), [&](const Field& f) { return f.key == key; });
  return found == fields().end() ? nullptr : &*found;
}

const std::vector<Section>& sections() {
  static const std::vector<Section> list = {
      {"model",
       "What is trained: a Hugging Face folder, a preset with fresh weights, or (to plan) only a size."},
      {"data", "The tokens."},
      {"batch", "How many sequences a step and a forward take."},
      {"mesh", "Sizes of the mesh axes. The product of all but ep and etp is the number of ranks."},
      {"shard", "Fully sharded data parallelism over dp_shard."},
      {"tensor", "Tensor and sequence parallelism over tp."},
      {"pipeline", "Pipeline parallelism."},
      {"context", "Context parallelism."},
      {"expert", "Expert parallelism."},
      {"recompute", "Memory against compute."},
      {"precision", "Number formats."},
      {"adapter", "LoRA over a frozen base."},
      {"optimizer", "The update."},
      {"lr_schedule", "The learning rate over the steps."},
      {"train", "The loop."},
      {"checkpoint", "What is written while it runs."},
      {"run", "Ranks, devices, limits."},
      {"cluster", "Devices and links, for planning: a short form, a mapping or a file."},
      {"plan", "The planner's wishes."},
      {"debug", "Looking inside."},
  };
  return list;
}

const Section* find_section(std::string_view name) {
  const auto found =
      std::find_if(sections().begin(), sections().end(), [&](const Section& s) { return s.name == name; });
  return found == sections().end() ? nullptr : &*found;
}

}  // namespace ndmesh::job
