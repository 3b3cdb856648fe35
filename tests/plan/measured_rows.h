#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ndmesh/base/hash.h"
#include "ndmesh/base/text.h"

namespace ndmesh::plan {

using Cells = std::vector<std::pair<std::string, std::string>>;

inline const std::vector<std::string>& training_columns() {
  static const std::vector<std::string> columns = {"id",
                                                   "model_name",
                                                   "layers",
                                                   "hidden",
                                                   "ffn_hidden",
                                                   "heads",
                                                   "kv_heads",
                                                   "head_dim",
                                                   "vocab",
                                                   "seq_len",
                                                   "experts",
                                                   "top_k",
                                                   "moe_ffn",
                                                   "gated_mlp",
                                                   "gpu",
                                                   "gpus",
                                                   "nodes_gpus_per_node",
                                                   "interconnect",
                                                   "dp_replicate",
                                                   "dp_shard",
                                                   "zero_stage",
                                                   "tp",
                                                   "pp",
                                                   "vpp",
                                                   "cp",
                                                   "ep",
                                                   "micro_batch",
                                                   "global_batch",
                                                   "precision",
                                                   "recompute",
                                                   "step_time_s",
                                                   "tokens_per_s_per_gpu",
                                                   "peak_mem_gib",
                                                   "notes",
                                                   "status",
                                                   "pp_schedule",
                                                   "group"};
  return columns;
}

inline std::string training_header() {
  return join(training_columns(), ",") + "\n";
}

/// A line of the training table: a 7B model on 16 A100s that ran, with some cells changed.
inline std::string training_row(const Cells& changes) {
  Cells cells = {{"id", "r"},
                 {"model_name", "llama"},
                 {"layers", "32"},
                 {"hidden", "4096"},
                 {"ffn_hidden", "11008"},
                 {"heads", "32"},
                 {"vocab", "32000"},
                 {"seq_len", "2048"},
                 {"gated_mlp", "1"},
                 {"gpu", "A100-80GB-SXM"},
                 {"gpus", "16"},
                 {"dp_replicate", "4"},
                 {"tp", "2"},
                 {"pp", "2"},
                 {"micro_batch", "1"},
                 {"global_batch", "64"},
                 {"precision", "bf16"},
                 {"recompute", "none"},
                 {"step_time_s", "10"},
                 {"status", "ok"},
                 {"group", "dgxc"}};
  cells.insert(cells.end(), changes.begin(), changes.end());
  std::vector<std::string> values;
  for (const std::string& column : training_columns()) {
    values.emplace_back();
    for (const auto& [name, cell] : cells) {
      if (name == column) values.back() = cell;
    }
  }
  return join(values, ",") + "\n";
}

/// The same with up to three cells replaced at random by what readers and models trip over.
inline std::string mutated_row(std::uint64_t seed) {
  const std::vector<std::string> values = {
      "",           "0",    "-1",       "1",     "3",        "8",     "1e7",      "1e308",    "nan",
      "inf",        "0x10", "9999999",  "7 7",   "10000000", "2.5",   "A100 (x)", "deepseek", "full",
      "{nodes: 9}", "16x8", "\xff\xfe", "ZB-1p", "128x8x8",  "NVFP4", "0.000001", "64",       "1024"};
  Cells changes = {{"id", std::to_string(seed)}};
  for (std::uint64_t i = 0; i <= random_at(seed, 0) % 3; ++i) {
    changes.emplace_back(training_columns()[1 + random_at(seed, 2 * i + 1) % (training_columns().size() - 1)],
                         values[random_at(seed, 2 * i + 2) % values.size()]);
  }
  return training_row(changes);
}

}  // namespace ndmesh::plan
