#include "ndmesh/train/parameter_file.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "ndmesh/base/error.h"
#include "ndmesh/parallel/fully_shard.h"
#include "ndmesh/parallel/replicate.h"
#include "ndmesh/train/safetensors.h"
#include "parallel/two_layers.h"
#include "train/scratch_folder.h"

namespace ndmesh::train {
namespace {

using mesh::MeshSizes;
using test::Network;
using testing::HasSubstr;

using Body = std::function<void(parallel::DataParallel&, comm::Communicator&)>;

/// Lays a network out over a mesh and does something with it on every rank. `shift` moves all values.
void on_mesh(const MeshSizes& sizes, const Body& body, double shift = 0, at::ScalarType dtype = at::kDouble) {
  comm::run_ranks(mesh::Mesh(sizes), {}, [&](comm::Communicator& communicator) {
    Network network(dtype, shift);
    if (sizes.dp_shard == 1) {
      const auto layout = parallel::replicate(network, communicator, mesh::loss_axes);
      return body(*layout, communicator);
    }
    for (const auto& layer : network.layers()) {
      parallel::fully_shard(*layer, communicator);
    }
    body(*parallel::fully_shard(network, communicator), communicator);
  });
}

void save(const std::filesystem::path& file, const MeshSizes& sizes, double shift = 0) {
  on_mesh(
      sizes, [&](auto& layout, auto& communicator) { save_parameters(file, layout, communicator); }, shift);
}

/// Values of a network without a layout, by name.
std::map<std::string, at::Tensor> values_of(double shift) {
  const Network network(at::kDouble, shift);
  std::map<std::string, at::Tensor> values;
  for (const auto& item : network.named_parameters()) {
    values[item.key()] = item.value().detach();
  }
  return values;
}

/// What loading `file` on two shard ranks is refused with; on both, and without a change.
std::string refusal(const std::filesystem::path& file) {
  std::mutex mutex;
  std::vector<std::string> messages;
  on_mesh({.dp_shard = 2}, [&](parallel::DataParallel& layout, comm::Communicator& communicator) {
    try {
      load_parameters(file, layout, communicator);
    } catch (const RequestError& error) {
      const std::lock_guard lock(mutex);
      messages.emplace_back(error.what());
    }
    const auto expected = values_of(0);
    for (const parallel::Trainable& trainable : layout.trainables()) {
      EXPECT_TRUE(layout.gather_value(trainable).equal(expected.at(trainable.name))) << trainable.name;
    }
  });
  EXPECT_EQ(messages.size(), 2U);
  return messages.empty() ? "" : messages.front();
}

void write(const std::filesystem::path& file, const std::map<std::string, at::Tensor>& values, DType dtype) {
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, value] : values) {
    tensors.push_back({name, value.sizes().vec()});
  }
  write_safetensors(file, tensors, dtype, {}, [&](const std::string& name) { return values.at(name); });
}

TEST(ParameterFile, IsTheSameOfEveryMesh) {
  const ScratchFolder folder;
  save(folder / "one", {});
  const SafetensorsFile stored(folder / "one");
  for (const auto& [name, value] : values_of(0)) {
    at::Tensor read = at::empty_like(value);
    layout::Box whole;
    for (const std::int64_t extent : value.sizes()) {
      whole.push_back({0, extent});
    }
    stored.read(name, whole, read);
    EXPECT_TRUE(read.equal(value)) << name;
  }
  const std::vector<MeshSizes> meshes = {
      {.dp_replicate = 2}, {.dp_shard = 2}, {.dp_shard = 3}, {.dp_shard = 2, .dp_replicate = 2}};
  for (const MeshSizes& sizes : meshes) {
    save(folder / "other", sizes);
    EXPECT_EQ(contents(folder / "other"), contents(folder / "one")) << sizes.name();
  }
}

TEST(ParameterFile, IsReadOnAnyMesh) {
  const ScratchFolder folder;
  save(folder / "file", {.dp_shard = 3}, /*shift=*/0.5);
  const auto expected = values_of(0.5);
  const std::vector<MeshSizes> meshes = {
      {}, {.dp_replicate = 2}, {.dp_shard = 2}, {.dp_shard = 4}, {.dp_shard = 2, .dp_replicate = 2}};
  for (const MeshSizes& sizes : meshes) {
    on_mesh(sizes, [&](parallel::DataParallel& layout, comm::Communicator& communicator) {
      load_parameters(folder / "file", layout, communicator);
      for (const parallel::Trainable& trainable : layout.trainables()) {
        EXPECT_TRUE(layout.gather_value(trainable).equal(expected.at(trainable.name))) << trainable.name;
      }
    });
  }
}

// The forward after loading computes with what was loaded, also where full parameters were gathered before.
TEST(ParameterFile, IsWhatTheNextForwardUses) {
  const ScratchFolder folder;
  save(folder / "file", {}, /*shift=*/0.5);
  const at::Tensor input = test::samples(0, 4, at::kDouble);
  const double expected = Network(at::kDouble, 0.5).loss(input, 1.0).item<double>();
  comm::run_ranks(mesh::Mesh({.dp_shard = 2}), {}, [&](comm::Communicator& communicator) {
    Network network(at::kDouble);
    const auto layout = parallel::fully_shard(network, communicator, {.zero = 2});
    {
      const at::NoGradGuard no_grad;
      EXPECT_NE(network.loss(input, 1.0).item<double>(), expected);
    }
    load_parameters(folder / "file", *layout, communicator);
    EXPECT_EQ(network.loss(input, 1.0).item<double>(), expected);
  });
}

// Frozen parameters are saved and loaded like the others; in bfloat16 they have no float32 value.
TEST(ParameterFile, HoldsFrozenParametersToo) {
  const ScratchFolder folder;
  const auto frozen_on = [](const MeshSizes& sizes, double shift, const auto& body) {
    comm::run_ranks(mesh::Mesh(sizes), {}, [&](comm::Communicator& communicator) {
      Network network(at::kBFloat16, shift);
      network.second->weight.set_requires_grad(false);
      body(*parallel::fully_shard(network, communicator), communicator);
    });
  };
  frozen_on({.dp_shard = 2}, 0.5, [&](parallel::DataParallel& layout, comm::Communicator& communicator) {
    save_parameters(folder / "file", layout, communicator);
  });
  EXPECT_EQ(SafetensorsFile(folder / "file").tensors().size(), values_of(0).size());
  frozen_on({.dp_shard = 3}, 2, [&](parallel::DataParallel& layout, comm::Communicator& communicator) {
    load_parameters(folder / "file", layout, communicator);
    EXPECT_EQ(layout.parameters().size(), layout.trainables().size() + 1);
    const Network right(at::kBFloat16, 0.5);
    const auto named = right.named_parameters();
    for (const parallel::OwnedParameter& parameter : layout.parameters()) {
      const at::Tensor whole = layout.gather_value(parameter).to(at::kBFloat16);
      EXPECT_TRUE(whole.equal(*named.find(parameter.name))) << parameter.name;
    }
  });
}

TEST(ParameterFile, IsConvertedToTheDtypeOfTraining) {
  const ScratchFolder folder;
  write(folder / "bf16", values_of(0), DType::bfloat16);
  on_mesh(
      {.dp_shard = 2},
      [&](parallel::DataParallel& layout, comm::Communicator& communicator) {
        load_parameters(folder / "bf16", layout, communicator);
        for (const parallel::Trainable& trainable : layout.trainables()) {
          const at::Tensor right = values_of(0).at(trainable.name).to(at::kBFloat16).to(at::kFloat);
          EXPECT_TRUE(layout.gather_value(trainable).equal(right)) << trainable.name;
        }
      },
      /*shift=*/2, at::kBFloat16);
}

/// One tensor under two names, beside one that is a transposed view.
struct Tied : torch::nn::Module, nn::Unit {
  explicit Tied(double shift) {
    const at::Tensor values = at::arange(15, at::kDouble).view({3, 5}) + shift;
    table = register_parameter("table", values.clone());
    head = register_parameter("head", table);
    turned = register_parameter("turned", values.t());
  }
  at::Tensor forward(const at::Tensor& input) {
    return pass(input, [this](const at::Tensor& x) { return at::linear(at::linear(x, table), head.t()); });
  }
  at::Tensor table, head, turned;
};

TEST(ParameterFile, HoldsATiedTensorOnceAndAViewDense) {
  const ScratchFolder folder;
  const at::Tensor x = at::ones({2, 5}, at::kDouble);
  const auto on_two = [&](double shift, const auto& body) {
    comm::run_ranks(mesh::Mesh({.dp_shard = 2}), {}, [&](comm::Communicator& communicator) {
      const at::NoGradGuard no_grad;
      Tied module(shift);
      body(module, *parallel::fully_shard(module, communicator), communicator);
    });
  };
  on_two(1, [&](Tied&, parallel::DataParallel& layout, comm::Communicator& communicator) {
    save_parameters(folder / "file", layout, communicator);
  });
  const SafetensorsFile stored(folder / "file");
  EXPECT_EQ(stored.tensors().size(), 2U);
  EXPECT_FALSE(stored.tensors().contains("head"));
  at::Tensor turned = at::empty({5, 3}, at::kDouble);
  stored.read("turned", {{0, 5}, {0, 3}}, turned);
  EXPECT_TRUE(turned.equal(Tied(1).turned));
  on_two(7, [&](Tied& module, parallel::DataParallel& layout, comm::Communicator& communicator) {
    load_parameters(folder / "file", layout, communicator);
    EXPECT_TRUE(module.forward(x).equal(Tied(1).forward(x)));
  });
}

TEST(ParameterFile, AllThatDoesNotFitIsRefusedAtOnce) {
  const ScratchFolder folder;
  auto values = values_of(0);
  values["first.bias"] = at::zeros({6}, at::kDouble);
  values["fourth.weight"] = at::zeros({2, 2}, at::kDouble);
  values.erase("scale");
  write(folder / "file", values, DType::float64);
  const std::string message = refusal(folder / "file");
  EXPECT_THAT(message, HasSubstr("parameter first.bias has shape [6] there, but [7] in the module"));
  EXPECT_THAT(message, HasSubstr("tensor \"fourth.weight\" is no parameter of the module"));
  EXPECT_THAT(message, HasSubstr("lacks parameter scale"));
}

TEST(ParameterFile, MissingAndDamagedFilesAreRefused) {
  const ScratchFolder folder;
  EXPECT_THAT(refusal(folder / "none"), HasSubstr((folder / "none").string()));
  save(folder / "file", {});
  std::string bytes = contents(folder / "file");
  bytes.pop_back();
  EXPECT_THAT(refusal(folder.file("short", bytes)), HasSubstr("short"));
}

TEST(ParameterFile, ThatCannotBeWrittenIsAnErrorOnEveryRankAndNotTheEnd) {
  const ScratchFolder folder;
  std::mutex mutex;
  std::vector<std::string> messages;
  on_mesh({.dp_shard = 3}, [&](parallel::DataParallel& layout, comm::Communicator& communicator) {
    try {
      save_parameters(folder / "no" / "file", layout, communicator);
    } catch (const RunError& error) {
      const std::lock_guard lock(mutex);
      messages.emplace_back(error.what());
    }
    save_parameters(folder / "file", layout, communicator);
  });
  EXPECT_EQ(messages.size(), 3U);
  EXPECT_THAT(messages, testing::Each(HasSubstr((folder / "no" / "file").string())));
  EXPECT_THAT(messages, testing::Contains(HasSubstr("No such file or directory")));
  EXPECT_FALSE(std::filesystem::exists(folder / "no"));
  EXPECT_TRUE(std::filesystem::exists(folder / "file"));
}

// A save that only one rank enters is a mistake that must be named, not waited for.
TEST(ParameterFile, SavedByOneRankOnlyNamesWhoIsMissing) {
  const ScratchFolder folder;
  save(folder / "file", {}, /*shift=*/1);
  const std::string before = contents(folder / "file");
  try {
    on_mesh({.dp_shard = 2}, [&](parallel::DataParallel& layout, comm::Communicator& communicator) {
      if (communicator.rank() == 0) {
        save_parameters(folder / "file", layout, communicator);
      }
    });
    FAIL();
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1"));
    EXPECT_THAT(error.what(), HasSubstr("value of "));
  }
  EXPECT_EQ(contents(folder / "file"), before);
  EXPECT_FALSE(std::filesystem::exists(folder / "file.partial"));
}

}  // namespace
}  // namespace ndmesh::train
