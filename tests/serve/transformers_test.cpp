// Model folders that ndmesh writes, read by Transformers: transformers_logits.py.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "ndmesh/serve/generate.h"
#include "ndmesh/train/safetensors.h"
#include "train/scratch_folder.h"

namespace ndmesh::serve {
namespace {

/// Writes `source` again in `dtype` and shards, and beside it the logits that it gives here.
void write_with_logits(const std::string& source, const std::filesystem::path& folder, DType dtype,
                       std::int64_t shard_bytes) {
  const auto original = load_decoder(source, DType::float64);
  const auto parameters = original->named_parameters();
  train::write_model_folder(
      folder, original->spec(), dtype, [&](const std::string& name) { return parameters[name]; },
      shard_bytes);

  const auto model = load_decoder(folder, DType::float64);
  const at::NoGradGuard no_grad;
  const at::Tensor ids_BS = (at::arange(24, at::kLong) * 7 % 31).reshape({2, 12});
  const at::Tensor logits_BSV = model->logits(ids_BS);
  train::write_safetensors(
      folder / "logits.safetensors", {{"ids", {2, 12}}, {"logits", logits_BSV.sizes().vec()}}, DType::float64,
      {{"format", "pt"}}, [&](const std::string& name) { return name == "ids" ? ids_BS : logits_BSV; });
}

TEST(SlowTransformers, ComputesTheSameLogitsFromWrittenFolders) {
  const train::ScratchFolder scratch;
  const std::string models = std::string(NDMESH_TEST_DATA) + "/oracle/";
  const char* python = std::getenv("NDMESH_PYTHON");
  const auto script =
      std::filesystem::path(NDMESH_TEST_DATA).parent_path() / "serve" / "transformers_logits.py";
  std::string command = fmt::format("{} {}", python != nullptr ? python : "python3", script.string());
  const auto add = [&](const std::string& model, const std::string& name, DType dtype,
                       std::int64_t shard_bytes) {
    write_with_logits(models + model, scratch / name, dtype, shard_bytes);
    command += fmt::format(" {}", (scratch / name).string());
  };
  add("tiny-a", "float32", DType::float32, 5'000'000'000);
  add("tiny-a", "bfloat16", DType::bfloat16, 5'000'000'000);
  add("tiny-a", "three-shards", DType::float32, 300'000);
  add("llama-tied", "tied", DType::float32, 5'000'000'000);
  add("llama-scaled", "scaled", DType::float32, 5'000'000'000);
  add("mistral", "mistral", DType::float32, 5'000'000'000);
  add("qwen2", "qwen2", DType::float32, 5'000'000'000);
  for (const char* family : {"qwen3", "gemma2", "gemma3", "gpt2", "phi3", "olmo2", "granite"}) {
    add(family, family, DType::float32, 5'000'000'000);
  }
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "python3 has no Transformers";
  }
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ndmesh::serve
