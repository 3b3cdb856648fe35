#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ndmesh/nn/ports.h>
#include <torch/nn/module.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

/// A model as a user would write it: does a document answer a query? Each is a bag of words that a tower of its own makes a
/// vector of; the nearer the vectors, the likelier.
/// Shape letters: B pairs, W words of a text, V vocabulary, H hidden, F wide.
namespace own_model {

struct Sizes {
  std::int64_t vocabulary = 500;
  std::int64_t hidden = 48;
  std::int64_t wide = 130;
  std::int64_t blocks = 3;  ///< of each tower
  at::ScalarType dtype = at::kFloat;
};

/// Fresh values. From a generator of its own: the default one belongs to the whole process, and rank threads would draw from
/// it in turn.
class Values {
 public:
  Values(std::uint64_t seed, at::ScalarType dtype)
      : generator_(at::make_generator<at::CPUGeneratorImpl>(seed)), dtype_(dtype) {}
  at::Tensor normal(at::IntArrayRef shape, double deviation) {
    return at::randn(shape, generator_, at::TensorOptions().dtype(at::kDouble)).mul_(deviation).to(dtype_);
  }
  at::Tensor zeros(at::IntArrayRef shape) const {
    return at::zeros(shape, at::TensorOptions().dtype(dtype_));
  }

 private:
  at::Generator generator_;
  at::ScalarType dtype_;
};

/// x + down(gelu(up(x))): what is sharded and recomputed at a time. What makes it an nn::Unit is the base class and that its
/// forward is one pass.
struct Block : torch::nn::Module, ndmesh::nn::Unit {
  Block(const Sizes& sizes, Values& values) {
    const double deviation = 1 / std::sqrt(static_cast<double>(sizes.hidden));
    up_FH = register_parameter("up", values.normal({sizes.wide, sizes.hidden}, deviation));
    bias_F = register_parameter("bias", values.zeros({sizes.wide}));
    down_HF = register_parameter("down", values.normal({sizes.hidden, sizes.wide}, 0.2 * deviation));
  }
  at::Tensor forward(const at::Tensor& in_BH) {
    return pass(in_BH, [this](const at::Tensor& x_BH) {
      return x_BH + at::linear(at::gelu(at::linear(x_BH, up_FH, bias_F)), down_HF);
    });
  }
  at::Tensor up_FH, bias_F, down_HF;
};

/// Mean of the words' vectors, through the blocks, to length 1.
struct Tower : torch::nn::Module {
  Tower(const Sizes& sizes, Values& values) {
    table_VH = register_parameter("table", values.normal({sizes.vocabulary, sizes.hidden}, 1.0));
    for (std::int64_t i = 0; i < sizes.blocks; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>(sizes, values)));
    }
  }
  at::Tensor forward(const at::Tensor& words_BW) {
    at::Tensor x_BH = at::embedding(table_VH, words_BW).mean(1);
    for (const auto& block : blocks) {
      x_BH = block->forward(x_BH);
    }
    return x_BH / x_BH.norm(2, {1}, /*keepdim=*/true);
  }
  at::Tensor table_VH;
  std::vector<std::shared_ptr<Block>> blocks;
};

/// The root: two towers, and how much nearness counts.
struct TwoTower : torch::nn::Module, ndmesh::nn::Unit {
  explicit TwoTower(const Sizes& sizes, std::uint64_t seed = 1) {
    Values values(seed, sizes.dtype);
    query = register_module("query", std::make_shared<Tower>(sizes, values));
    document = register_module("document", std::make_shared<Tower>(sizes, values));
    sharpness = register_parameter("sharpness", values.zeros({1}) + 5.0);
  }

  /// How surely each document answers its query: the logarithm of the odds.
  at::Tensor forward(const at::Tensor& queries_BW, const at::Tensor& documents_BW) {
    return pass(queries_BW, [this, documents_BW](const at::Tensor& words_BW) {
      return (query->forward(words_BW) * document->forward(documents_BW)).sum(1) * sharpness;
    });
  }

  std::vector<std::shared_ptr<Block>> blocks() const {
    std::vector<std::shared_ptr<Block>> all = query->blocks;
    all.insert(all.end(), document->blocks.begin(), document->blocks.end());
    return all;
  }

  std::shared_ptr<Tower> query, document;
  at::Tensor sharpness;
};

}  // namespace own_model
