// The decoder in float64 against Transformers in float64: tests/data/oracle (how it was made stands in its
// README).
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <filesystem>

#include "ndmesh/model/config.h"
#include "ndmesh/nn/decoder.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/nn/parameter.h"
#include "ndmesh/train/safetensors.h"

namespace ndmesh::train {
namespace {

at::Tensor read_whole(const SafetensorsFile& file, const std::string& name) {
  const std::vector<std::int64_t>& shape = file.tensor(name).shape;
  layout::Box box;
  for (const std::int64_t size : shape) {
    box.push_back({0, size});
  }
  at::Tensor out = at::empty(shape, at::kDouble);
  file.read(name, box, out);
  return out;
}

double distance(const at::Tensor& left, const at::Tensor& right) {
  EXPECT_EQ(left.sizes(), right.sizes());
  return ((left - right).abs().max() / right.abs().max()).item<double>();
}

class Oracle : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, Oracle,
                         testing::Values("llama", "llama-tied", "llama-scaled", "llama-linear", "mistral",
                                         "qwen2", "qwen3", "tiny-a", "gemma2", "gemma3", "gpt2", "phi3",
                                         "olmo2", "granite"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(Oracle, GivesTheSameLogitsLossAndGradients) {
  const std::filesystem::path folder = std::filesystem::path(NDMESH_TEST_DATA) / "oracle" / GetParam();
  const SafetensorsFile weights(folder / "model.safetensors");
  const SafetensorsFile oracle(folder / "oracle.safetensors");
  nn::Decoder decoder(model::spec_from_folder(folder), at::kDouble);
  for (const auto& item : decoder.named_parameters()) {
    nn::take_memory(item.value());
    item.value().detach().copy_(read_whole(weights, item.key()));
  }
  const at::Tensor ids = read_whole(oracle, "ids").to(at::kLong);
  const at::Tensor targets = read_whole(oracle, "targets").to(at::kLong);
  EXPECT_LT(distance(decoder.logits(ids).detach(), read_whole(oracle, "logits")), 1e-12);

  const double valid = targets.ne(nn::ignored).sum().item<double>();
  const at::Tensor loss = decoder.loss(ids, targets, 1.0 / valid, 10);
  EXPECT_LT(distance(loss.detach().view({1}), read_whole(oracle, "loss")), 1e-13);
  loss.backward();
  for (const auto& item : decoder.named_parameters()) {
    EXPECT_LT(distance(item.value().grad(), read_whole(oracle, "grad." + item.key())), 1e-10) << item.key();
  }
  EXPECT_EQ(oracle.tensors().size(), decoder.named_parameters().size() + 4);
}

}  // namespace
}  // namespace ndmesh::train
