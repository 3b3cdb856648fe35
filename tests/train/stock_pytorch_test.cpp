#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ndmesh/train/run.h"
#include "train/models.h"
#include "train/scratch_folder.h"

/// Losses and gradient norms, step by step, against a trainer written in plain PyTorch (tests/data/stock_pytorch).
namespace ndmesh::train {
namespace {

const std::filesystem::path data = NDMESH_TEST_DATA;

struct StockCase {
  std::string model;
  mesh::MeshSizes mesh;
};

std::vector<nlohmann::json> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

class StockPyTorch : public testing::TestWithParam<StockCase> {};

TEST_P(StockPyTorch, GivesTheSameLossesAndNorms) {
  const ScratchFolder folder;
  job::Job job;
  job.model.path = (data / "oracle" / GetParam().model).string();
  job.data.files = {(data / "stock_pytorch" / "tokens.u16").string()};
  job.data.format = job::DataFormat::u16;
  job.data.shuffle = false;
  job.batch = {.global = 8, .micro = 2, .seq_len = 16};
  job.mesh = GetParam().mesh;
  job.dtype = DType::float64;
  job.optimizer.lr = 1e-2;
  job.train.steps = 5;
  job.train.loss_chunk = 9;
  job.run.threads = 1;
  run_training(open_inputs(job), {folder.path(), nullptr, {}});

  std::vector<nlohmann::json> steps;
  for (nlohmann::json& line : lines_of(folder.path() / "record.jsonl")) {
    if (line["kind"] == "step") {
      steps.push_back(std::move(line));
    }
  }
  const auto expected = lines_of(data / "stock_pytorch" / (GetParam().model + ".jsonl"));
  ASSERT_EQ(steps.size(), expected.size());
  for (std::size_t s = 0; s < expected.size(); ++s) {
    const double loss = expected[s]["loss"];
    const double norm = expected[s]["grad_norm"];
    EXPECT_NEAR(steps[s]["loss"].get<double>(), loss, 1e-12 * loss) << "step " << s + 1;
    EXPECT_NEAR(steps[s]["grad_norm"].get<double>(), norm, 1e-10 * norm) << "step " << s + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(, StockPyTorch,
                         testing::Values(StockCase{"llama", {}}, StockCase{"llama", {.dp_replicate = 2}},
                                         StockCase{"llama-tied", {.dp_shard = 2}},
                                         StockCase{"qwen2", {.dp_shard = 4}},
                                         StockCase{"qwen3", {.dp_shard = 2, .dp_replicate = 2}},
                                         StockCase{"tiny-a", {.dp_shard = 2}}),
                         [](const auto& one) {
                           std::string name = one.param.model + "_" + one.param.mesh.name();
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace ndmesh::train
