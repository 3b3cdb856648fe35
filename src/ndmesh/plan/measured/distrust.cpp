#include "ndmesh/plan/measured/distrust.h"

#include <array>

namespace ndmesh::plan {
namespace {

/// An objection by words in `column`, and in `group` when one is named.
struct ByWords {
  std::string_view group;  ///< empty: any
  std::string_view column;
  std::string_view words;  ///< empty: every row of the group
  std::string_view part;
  std::string_view reason;
};

constexpr std::array by_words = {
    ByWords{"", "notes", "do not use for validation", "", "its notes say not to validate with it"},
    ByWords{"", "notes", "suspect", "", "its notes call it suspect"},
    ByWords{"", "notes", "outlier vs neighbours", "", "an outlier against its neighbours in its source"},
    ByWords{"", "notes", "vary by up to 40%", "time", "identical jobs varied by up to 40 %"},
    ByWords{"", "notes", "varied by up to 40%", "time", "identical jobs varied by up to 40 %"},
    ByWords{"", "notes", "throughput noisy", "time", "its throughput was noisy"},
    ByWords{"", "notes", "natural routing", "time", "experts were not balanced, by how much is not stated"},
    ByWords{"", "notes", "printed as approximate", "time", "printed as approximate"},
    ByWords{"", "notes", "known problem", "time", "its source names a known problem of this way"},
    ByWords{"", "notes", "parallel block", "time", "another block and another optimizer"},
    ByWords{"", "notes", "batch and sequence not printed", "", "batch and sequence are not printed"},
    ByWords{"", "notes", "sequence length not printed", "", "the sequence length is not printed"},
    ByWords{"", "gpu", "power limited", "time", "the device was power limited"},
    ByWords{"", "notes", "8-bit adam", "memory", "optimizer states in 8 bits are not modelled"},
    ByWords{"llmq", "notes", "", "memory", "a trainer with an allocator of its own"},
    ByWords{"llmq", "notes", "", "verdict", "a trainer with an allocator of its own"},
    ByWords{"fms-fsdp", "notes", "selective ac ratio not printed", "verdict",
            "how many blocks are recomputed is not printed"},
    ByWords{"megatron-functional-small", "notes", "", "time",
            "small models in deterministic mode: bound by launches"},
    ByWords{"megatron-functional", "notes", "deterministic-mode", "time", "deterministic mode"},
};

struct ById {
  std::string_view id;
  std::string_view part;
  std::string_view reason;
};

constexpr std::array by_id = {
    ById{"bridge-160", "", "70B on one device's worth of states cannot fit: probably a misprint"},
    ById{"colossal-002", "", "inconsistent with its hardware"},
    ById{"colossal-003", "", "the mesh does not multiply to its devices"},
    ById{"colossal-004", "", "inconsistent with its hardware"},
};

/// BLOOM's chronicle: a micro-batch of 2 that takes more than one of 4, and one batch size that stands alone.
bool is_bloom_slip(const MeasuredRow& row) {
  if (row.text("group") != "bloom" || row.text("pp") != "6") return false;
  const bool more_than_twice_the_batch = row.text("model_name") == "gpt-196B" &&
                                         row.text("micro_batch") == "2" && row.text("peak_mem_gib") == "65";
  return more_than_twice_the_batch || row.text("global_batch") == "1568";
}

bool is_gpt_oss_regression(const MeasuredRow& row) {
  return row.text("group") == "bridge-summary" && lower(row.text("model_name")).starts_with("gpt-oss") &&
         (row.text("source").find("26.06.01") != std::string_view::npos || row.noted("26.06.01"));
}

}  // namespace

std::vector<Distrust> distrust(const MeasuredRow& row) {
  std::vector<Distrust> found;
  for (const ByWords& entry : by_words) {
    if (!row.text("group").starts_with(entry.group)) continue;
    if (!contains(lower(row.text(entry.column)), entry.words)) continue;
    found.push_back({std::string(entry.part), std::string(entry.reason)});
  }
  for (const ById& entry : by_id) {
    if (row.text("id") == entry.id) found.push_back({std::string(entry.part), std::string(entry.reason)});
  }
  if (is_bloom_slip(row)) found.push_back({"", "looks like a slip in its source"});
  if (is_gpt_oss_regression(row))
    found.push_back({"time", "its source names a known regression of this model"});
  return found;
}

}  // namespace ndmesh::plan
