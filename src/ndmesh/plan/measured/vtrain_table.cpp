#include "ndmesh/plan/measured/vtrain_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/base/text.h"
#include "ndmesh/plan/measured/measured_row.h"
#include "ndmesh/plan/measured/measured_run.h"
#include "ndmesh/plan/measured/measured_time.h"

namespace ndmesh::plan {
namespace {

constexpr std::int64_t node_devices = 8;
constexpr std::int64_t gpt2_vocab = 50'257;

model::ModelSpec gpt(const MeasuredRow& row) {
  model::ModelSpec spec;
  spec.family = "gpt2";
  spec.hidden = row.needed("hidden");
  spec.layers = row.needed("layers");
  spec.heads = spec.kv_heads = row.needed("heads");
  spec.head_dim = std::max<std::int64_t>(1, spec.hidden / spec.heads);
  spec.ffn = 4 * spec.hidden;
  spec.vocab = gpt2_vocab;
  spec.max_positions = row.needed("seq_len");
  spec.tied = true;
  spec.gated = false;
  spec.layer_norm = spec.learned_positions = true;
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = true;
  if (spec.layers > 10'000) row.problems().add("layers are more than 10000");
  return spec;
}

cluster::Cluster a100_nodes(const MeasuredRow& row, std::int64_t devices) {
  if (devices > node_devices && devices % node_devices != 0) {
    row.problems().add(fmt::format("gpus {} are no whole nodes of {}", devices, node_devices));
    return {};
  }
  const std::int64_t nodes = std::max<std::int64_t>(1, devices / node_devices);
  return cluster::parse_cluster(fmt::format("{{nodes: {}, node: {}xA100-80GB-SXM}}", nodes, devices / nodes),
                                "cluster");
}

/// The table does not state recompute. On one node there is none: layers take the time of one forward and one
/// backward, and twice the forward would need 76 % of the device's peak with attention and memory for free.
/// Larger models do not fit without it.
job::Recompute recompute_on(std::int64_t devices) {
  using Policy = job::Recompute::Policy;
  return {devices > node_devices ? Policy::full : Policy::none, 1, 0};
}

Candidate candidate_of(const MeasuredRow& row, std::int64_t devices) {
  Candidate candidate;
  candidate.mesh.tp = row.needed("tp");
  candidate.mesh.pp = row.needed("pp");
  candidate.mesh.dp_replicate = row.needed("dp");
  candidate.micro = row.needed("micro_batch");
  candidate.recompute = recompute_on(devices);
  candidate.sequence_parallel = false;
  if (candidate.mesh.world() != devices) {
    row.problems().add(
        fmt::format("{} has {} ranks; gpus is {}", candidate.mesh.name(), candidate.mesh.world(), devices));
  }
  return candidate;
}

Measurement measurement_of(const MeasuredRow& row) {
  Measurement result;
  const std::int64_t devices = row.needed("gpus");
  result.id = fmt::format("line {}", row.line());
  result.group = devices > node_devices ? "vtrain-many-nodes" : "vtrain-one-node";
  result.cluster = result.group;
  Problem& problem = result.problem;
  problem.model = gpt(row);
  problem.cluster = a100_nodes(row, devices);
  problem.profile = profile("deepspeed");
  problem.profile.time = vtrain_time();
  problem.seq_len = row.needed("seq_len");
  problem.global_batch = row.needed("global_batch");
  result.candidate = candidate_of(row, devices);
  const auto milliseconds = row.positive("iteration_ms");
  if (!milliseconds) row.problems().add("iteration_ms is missing");
  result.seconds = milliseconds.value_or(0) / 1000;
  if (row.problems().empty()) {
    check_mesh(row, result);
    check_actions(row, micro_batches(problem, result.candidate), result.candidate.mesh.pp);
  }
  result.ranking =
      fmt::format("{} layers {} hidden {} heads; {} devices, batch {} x {}", problem.model.layers,
                  problem.model.hidden, problem.model.heads, devices, problem.global_batch, problem.seq_len);
  return result;
}

}  // namespace

std::vector<std::string> vtrain_columns() {
  return {"gpus",    "global_batch", "micro_batch", "hidden", "heads",       "layers",
          "seq_len", "tp",           "dp",          "pp",     "iteration_ms"};
}

bool is_vtrain_table(const CsvTable& table) {
  const std::vector<std::string> columns = vtrain_columns();
  return std::all_of(columns.begin(), columns.end(),
                     [&](const std::string& name) { return table.find(name); });
}

Measurements vtrain_measurements(const CsvTable& table) {
  Measurements all;
  all.rows = static_cast<std::int64_t>(table.records.size());
  for (const CsvRecord& record : table.records) {
    const MeasuredRow row(table, record);
    Measurement measurement = measurement_of(row);
    if (row.problems().empty()) {
      all.list.push_back(std::move(measurement));
    } else {
      all.left_out.push_back({measurement.id, "", join(row.problems().list(), "; ")});
    }
  }
  return all;
}

}  // namespace ndmesh::plan
