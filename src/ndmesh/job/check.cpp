#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"
#include "ndmesh/job/job.h"
#include "ndmesh/mesh/rules.h"
#include "ndmesh/model/config.h"

namespace ndmesh::job {
namespace {

constexpr std::int64_t most_ranks = 256;  // threads of one process

class Check {
 public:
  Check(const Job& job, const model::ModelSpec& model) : job_(job), model_(model) {}

  void run() {
    check_rules();
    check_what_is_built();
    check_shard();
    check_window();
    check_data();
    problems_.raise();
  }

 private:
  void check_rules() {
    mesh::RuleInput input = mesh::rule_input(model_, job_.mesh);
    input.global_batch = job_.batch.global;
    input.micro_batch = job_.batch.micro;
    input.seq_len = job_.batch.seq_len;
    input.context =
        job_.context.kind == "alltoall" ? mesh::ContextSplit::heads : mesh::ContextSplit::sequence;
    problems_.add_all(mesh::broken_rules(input));
  }

  void check_what_is_built() {
    const mesh::MeshSizes& sizes = job_.mesh;
    refuse_axis("mesh.tp_size", sizes.tp, "tensor parallelism");
    refuse_axis("mesh.pp_size", sizes.pp, "pipeline parallelism");
    refuse_axis("mesh.cp_size", sizes.cp, "context parallelism");
    refuse_axis("mesh.ep_size", sizes.ep, "expert parallelism");
    refuse_axis("mesh.etp_size", sizes.etp, "expert parallelism");
    const std::int64_t batch_ranks = sizes.dp_replicate * sizes.dp_shard;
    if (batch_ranks > most_ranks) {
      problems_.add(fmt::format(
          "mesh.dp_replicate_size {} times mesh.dp_shard_size {} is {} ranks; run.transport threads "
          "runs all of them in this process; allowed: at most {}",
          sizes.dp_replicate, sizes.dp_shard, batch_ranks, most_ranks));
    }
  }

  void refuse_axis(const std::string& key, std::int64_t size, const std::string& strategy) {
    if (size > 1) {
      problems_.add(
          fmt::format("{} is {}: {} is not built yet for running; allowed: 1", key, size, strategy));
    }
  }

  void check_shard() {
    if (job_.shard.zero == 0 && job_.mesh.dp_shard > 1) {
      problems_.add(
          fmt::format("shard.zero is 0, but mesh.dp_shard_size is {}; allowed: shard.zero 3, or "
                      "mesh.dp_replicate_size {} for whole copies",
                      job_.mesh.dp_shard, job_.mesh.dp_replicate * job_.mesh.dp_shard));
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
  throw RequestError("model.path or model.preset must be given; presets: " + join(model::preset_names()));
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
  return job.batch.global / (job.batch.micro * job.mesh.dp_replicate * job.mesh.dp_shard);
}

}  // namespace ndmesh::job
