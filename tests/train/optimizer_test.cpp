#include "ndmesh/train/optimizer.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ndmesh/measure/memory_ledger.h"
#include "ndmesh/model/config.h"
#include "ndmesh/train/matrix_exchange.h"
#include "ndmesh/train/muon.h"
#include "ndmesh/train/newton_schulz.h"
#include "ndmesh/train/sgd.h"

/// Optimizers against PyTorch's own (tests/data/optimizers), whole and cut over ranks.
namespace ndmesh::train {
namespace {

using parallel::Trainable;

const at::TensorOptions float64 = at::TensorOptions().dtype(at::kDouble);
const std::vector<layout::Shape> shapes = {{6, 4}, {3, 7}, {5}};

at::Tensor counted(const layout::Shape& shape) {
  return at::arange(c10::multiply_integers(shape), float64).view(shape);
}

/// This rank's rows of the parameters that the oracle starts with.
std::vector<Trainable> parameters_of(const mesh::Mesh& mesh, std::int64_t rank) {
  std::vector<Trainable> list;
  for (std::size_t p = 0; p < shapes.size(); ++p) {
    layout::TensorLayout layout(shapes[p], {layout::Placement::shard(mesh::shard_axes, 0)}, mesh);
    const layout::Range rows = layout.boxes(rank).front().front();
    const at::Tensor value =
        at::cos(counted(shapes[p]) + static_cast<double>(p)).narrow(0, rows.start, rows.size).contiguous();
    list.push_back(
        {{std::to_string(p), std::move(layout), value}, at::zeros_like(value), shapes[p].size() > 1});
  }
  return list;
}

void set_gradients(std::vector<Trainable>& parameters, std::int64_t rank, int step) {
  for (std::size_t p = 0; p < shapes.size(); ++p) {
    const layout::Range rows = parameters[p].layout.boxes(rank).front().front();
    const at::Tensor whole = at::sin(counted(shapes[p]) * 0.7 + static_cast<double>(p) + step);
    parameters[p].gradient.copy_(whole.narrow(0, rows.start, rows.size));
  }
}

nlohmann::json oracle(const std::string& name) {
  std::ifstream file(std::string(NDMESH_TEST_DATA) + "/optimizers/steps.json");
  return nlohmann::json::parse(file).at(name);
}

struct Rule {
  job::OptimizerName name = job::OptimizerName::adamw;
  double momentum = 0.95;
  bool nesterov = true;
  at::ScalarType products = at::kDouble;
  StateOptions states = {};
};

job::OptimizerSection settings_of(const Rule& rule) {
  job::OptimizerSection settings;
  settings.name = rule.name;
  settings.momentum = rule.momentum;
  settings.nesterov = rule.nesterov;
  return settings;
}

std::unique_ptr<Optimizer> made(const Rule& rule, const std::vector<Trainable>& parameters,
                                comm::Communicator& communicator) {
  const job::OptimizerSection settings = settings_of(rule);
  switch (rule.name) {
    case job::OptimizerName::sgd:
      return std::make_unique<Sgd>(settings, parameters, rule.states);
    case job::OptimizerName::muon:
      return std::make_unique<Muon>(settings, parameters, MuonOptions{rule.states, rule.products, {}},
                                    communicator);
    case job::OptimizerName::adamw:
      break;
  }
  return std::make_unique<AdamW>(settings, parameters, rule.states);
}

/// Largest difference from the oracle after five steps, over all ranks of `sizes`.
double error_of(const Rule& rule, const std::string& name, const mesh::MeshSizes& sizes) {
  const nlohmann::json right = oracle(name);
  const mesh::Mesh mesh(sizes);
  std::vector<double> errors(static_cast<std::size_t>(mesh.world()));
  comm::run_ranks(mesh, {}, [&](comm::Communicator& communicator) {
    const std::int64_t rank = communicator.rank();
    std::vector<Trainable> parameters = parameters_of(mesh, rank);
    const auto optimizer = made(rule, parameters, communicator);
    for (int step = 1; step <= 5; ++step) {
      set_gradients(parameters, rank, step);
      optimizer->step(0.05, 1.0);
    }
    for (std::size_t p = 0; p < shapes.size(); ++p) {
      const layout::Range rows = parameters[p].layout.boxes(rank).front().front();
      const at::Tensor whole = at::tensor(right.at(p).get<std::vector<double>>(), float64).view(shapes[p]);
      const at::Tensor difference = (parameters[p].value - whole.narrow(0, rows.start, rows.size)).abs();
      if (difference.numel() > 0) {
        double& worst = errors[static_cast<std::size_t>(rank)];
        worst = std::max(worst, difference.max().item<double>());
      }
    }
    EXPECT_EQ(optimizer->steps(), 5);
  });
  return *std::max_element(errors.begin(), errors.end());
}

const std::vector<mesh::MeshSizes> meshes = {{},
                                             {.dp_shard = 2},
                                             {.dp_shard = 3},
                                             {.dp_shard = 7},  // more ranks than rows
                                             {.dp_replicate = 2},
                                             {.dp_replicate = 3},
                                             {.dp_shard = 2, .dp_replicate = 2}};

void expect_oracle(const Rule& rule, const std::string& name) {
  for (const mesh::MeshSizes& sizes : meshes) {
    EXPECT_LT(error_of(rule, name, sizes), 1e-13) << name << " on " << sizes.name();
  }
}

TEST(Optimizers, FiveStepsAsPyTorch) {
  expect_oracle({job::OptimizerName::adamw}, "adamw");
  expect_oracle({job::OptimizerName::sgd, 0.95, false}, "sgd");
  expect_oracle({job::OptimizerName::sgd, 0.95, true}, "sgd_nesterov");
  expect_oracle({job::OptimizerName::sgd, 0.0, true}, "sgd_plain");
  expect_oracle({job::OptimizerName::muon, 0.95, true}, "muon");
  expect_oracle({job::OptimizerName::muon, 0.95, false}, "muon_plain");
}

TEST(Optimizers, OnTheHostAsPyTorch) {
  for (Rule rule : {Rule{job::OptimizerName::adamw}, Rule{job::OptimizerName::muon}}) {
    rule.states.on_host = true;
    expect_oracle(rule, rule.name == job::OptimizerName::adamw ? "adamw" : "muon");
  }
}

/// Products in bfloat16 differ in their last bits with the order of sums.
TEST(Optimizers, MuonMultipliesInBfloat16AsPyTorch) {
  EXPECT_LT(error_of({job::OptimizerName::muon, 0.95, true, at::kBFloat16}, "muon_bfloat16", {}), 2e-3);
  EXPECT_GT(error_of({job::OptimizerName::muon, 0.95, true, at::kBFloat16}, "muon", {}), 1e-4);
}

TEST(Optimizers, ClippingScalesTheGradient) {
  comm::run_ranks(mesh::Mesh(mesh::MeshSizes{}), {}, [](comm::Communicator& communicator) {
    const mesh::Mesh mesh{mesh::MeshSizes{}};
    for (const job::OptimizerName name : {job::OptimizerName::sgd, job::OptimizerName::muon}) {
      std::vector<Trainable> once = parameters_of(mesh, 0), scaled = parameters_of(mesh, 0);
      const auto a = made({name}, once, communicator), b = made({name}, scaled, communicator);
      set_gradients(once, 0, 1);
      set_gradients(scaled, 0, 1);
      for (Trainable& trainable : once) {
        trainable.gradient.mul_(0.25);
      }
      a->step(0.05, 1.0);
      b->step(0.05, 0.25);
      for (std::size_t p = 0; p < once.size(); ++p) {
        EXPECT_TRUE(at::equal(once[p].value, scaled[p].value));
      }
    }
  });
}

// ------------------------------------------------------------------------------------------------ states

/// By the textbook, with each moment rounded to bfloat16 after every step.
TEST(Bfloat16States, AreRoundedEachStepAndUpdatesAreNot) {
  comm::run_ranks(mesh::Mesh(mesh::MeshSizes{}), {}, [](comm::Communicator&) {
    const mesh::Mesh mesh{mesh::MeshSizes{}};
    std::vector<Trainable> parameters = parameters_of(mesh, 0);
    const job::OptimizerSection s;
    AdamW optimizer(s, parameters, {.bfloat16 = true});
    at::Tensor value = parameters[0].value.clone();
    at::Tensor first = at::zeros_like(value), second = at::zeros_like(value);
    const auto rounded = [](const at::Tensor& t) { return t.to(at::kBFloat16).to(at::kDouble); };
    for (int step = 1; step <= 5; ++step) {
      set_gradients(parameters, 0, step);
      const at::Tensor g = parameters[0].gradient.clone();
      optimizer.step(0.05, 1.0);
      first = first * s.beta1 + g * (1 - s.beta1);
      second = second * s.beta2 + g * g * (1 - s.beta2);
      const at::Tensor mean = first / (1 - std::pow(s.beta1, step));
      const at::Tensor root = (second / (1 - std::pow(s.beta2, step))).sqrt() + s.eps;
      value = value * (1 - 0.05 * s.weight_decay) - mean / root * 0.05;
      first = rounded(first);
      second = rounded(second);
    }
    EXPECT_LT((parameters[0].value - value).abs().max().item<double>(), 1e-13);
  });
}

/// Larger than one piece, with a rest.
TEST(OptimizerStates, PiecesGiveWhatTheWholeGives) {
  const std::int64_t count = OptimizerState::piece_elements + 12345;
  const mesh::Mesh mesh{mesh::MeshSizes{}};
  const at::Tensor numbers = at::arange(count, at::kFloat);
  const auto run = [&](const StateOptions& options) {
    const at::Tensor value = at::cos(numbers);
    std::vector<Trainable> list = {
        {{"w", layout::TensorLayout({count}, {}, mesh), value}, at::empty_like(value)}};
    AdamW optimizer({}, list, options);
    for (int step = 1; step <= 2; ++step) {
      list[0].gradient.copy_(at::sin(numbers + step));
      optimizer.step(0.05, 0.5);
    }
    return value;
  };
  EXPECT_TRUE(at::equal(run({}), run({.on_host = true})));
  EXPECT_TRUE(at::equal(run({.bfloat16 = true}), run({.bfloat16 = true, .on_host = true})));
}

TEST(OptimizerStates, TakeTheirMomentsAndNoMoreThanAPieceBeside) {
  measure::install_counting_allocator();
  const std::int64_t count = 3 * OptimizerState::piece_elements;
  const mesh::Mesh mesh{mesh::MeshSizes{}};
  measure::MemoryLedger ledger;
  const measure::LedgerScope paying(ledger);
  at::Tensor value, gradient;
  {
    const MemoryScope scope(MemoryCategory::parameters);
    value = at::ones({count}, at::kFloat);
    gradient = at::ones({count}, at::kFloat);
  }
  const std::vector<Trainable> list = {{{"w", layout::TensorLayout({count}, {}, mesh), value}, gradient}};
  AdamW narrow({}, list, {.bfloat16 = true});
  EXPECT_EQ(ledger.live()[MemoryCategory::optimizer], 2 * 2 * count);
  ledger.reset_peaks();
  narrow.step(0.1, 1.0);
  EXPECT_LE(ledger.peaks()[MemoryCategory::workspace], 2 * 4 * OptimizerState::piece_elements + 4096);
  AdamW offloaded({}, list, {.on_host = true});
  EXPECT_EQ(ledger.host_live()[MemoryCategory::optimizer], 2 * 4 * count);
  ledger.reset_peaks();
  offloaded.step(0.1, 1.0);
  EXPECT_LE(ledger.peaks()[MemoryCategory::workspace], 4096);
  EXPECT_LE(ledger.host_peaks()[MemoryCategory::workspace], 2 * 4 * OptimizerState::piece_elements + 4096);
}

// ------------------------------------------------------------------------------------------------- muon

/// By the singular values: x = U S V' becomes U f(S) V' with f five times the quintic.
TEST(NewtonSchulz, IsThePolynomialOfSingularValues) {
  for (const layout::Shape& shape : std::vector<layout::Shape>{{6, 4}, {3, 7}, {5, 5}}) {
    const at::Tensor x = at::sin(counted(shape) * 1.3 + 0.2) + at::eye(shape[0], shape[1], float64);
    const auto [u, s, v] = at::linalg_svd(x, /*full_matrices=*/false);
    at::Tensor f = s / s.norm();
    for (int i = 0; i < 5; ++i) {
      f = f * 3.4445 - f.pow(3) * 4.7750 + f.pow(5) * 2.0315;
    }
    const at::Tensor right = at::mm(u * f, v);
    EXPECT_LT((orthogonalised(x) - right).abs().max().item<double>(), 1e-12);
  }
  EXPECT_EQ(orthogonalised(at::zeros({3, 2}, float64)).abs().max().item<double>(), 0.0);
}

/// Every matrix is worked on once over all ranks, and every rank gets its rows of the result.
TEST(MatrixExchange, WorksOnEachMatrixOnce) {
  for (const mesh::MeshSizes& sizes : meshes) {
    const mesh::Mesh mesh(sizes);
    std::atomic<int> worked{0};
    comm::run_ranks(mesh, {}, [&](comm::Communicator& communicator) {
      const std::int64_t rank = communicator.rank();
      std::vector<Trainable> matrices;
      for (std::int64_t i = 1; i <= 5; ++i) {
        const layout::Shape shape = {i, 3};
        layout::TensorLayout layout(shape, {layout::Placement::shard(mesh::shard_axes, 0)}, mesh);
        const layout::Range rows = layout.boxes(rank).front().front();
        const at::Tensor own =
            (counted(shape) + 100.0 * static_cast<double>(i)).narrow(0, rows.start, rows.size).contiguous();
        matrices.push_back({{std::to_string(i), std::move(layout), own}, own, true});
      }
      MatrixExchange(matrices, communicator).transform([&](const at::Tensor& whole) {
        ++worked;
        return whole.flip({0});
      });
      for (std::int64_t i = 1; i <= 5; ++i) {
        const Trainable& matrix = matrices[static_cast<std::size_t>(i - 1)];
        const layout::Range rows = matrix.layout.boxes(rank).front().front();
        const at::Tensor right = (counted({i, 3}) + 100.0 * static_cast<double>(i)).flip({0});
        EXPECT_TRUE(at::equal(matrix.gradient, right.narrow(0, rows.start, rows.size))) << sizes.name();
      }
    });
    EXPECT_EQ(worked, 5) << sizes.name();
  }
}

TEST(MatrixExchange, RefusesMatricesThatAreNotCutByRows) {
  comm::run_ranks(mesh::Mesh({.dp_shard = 2}), {}, [](comm::Communicator& communicator) {
    const mesh::Mesh& mesh = communicator.mesh();
    const at::Tensor own = at::zeros({4, 2}, float64);
    const std::vector<Trainable> list = {
        {{"w", layout::TensorLayout({4, 4}, {layout::Placement::shard(mesh::shard_axes, 1)}, mesh), own},
         own}};
    try {
      MatrixExchange exchange(list, communicator);
      ADD_FAILURE() << "columns were accepted";
    } catch (const RunError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("matrix w"));
      EXPECT_THAT(error.what(), testing::HasSubstr("allowed: rows"));
    }
  });
}

TEST(Muon, RefusesGradientsInHostMemory) {
  comm::run_ranks(mesh::Mesh(mesh::MeshSizes{}), {}, [](comm::Communicator& communicator) {
    std::vector<Trainable> list = parameters_of(communicator.mesh(), 0);
    list[1].gradient_on_host = true;
    EXPECT_THROW(Muon({}, list, {}, communicator), RunError);
  });
}

/// Tables and the head go by AdamW.
TEST(MakeOptimizer, GivesMuonTheMatricesOfBlocksOnly) {
  comm::run_ranks(mesh::Mesh(mesh::MeshSizes{}), {}, [](comm::Communicator& communicator) {
    const mesh::Mesh mesh{mesh::MeshSizes{}};
    const auto matrix = [&](const std::string& name) {
      const at::Tensor value = at::ones({4, 4}, float64);
      return Trainable{{name, layout::TensorLayout({4, 4}, {}, mesh), value}, at::ones_like(value)};
    };
    std::vector<Trainable> list = {matrix("model.embed_tokens.weight"),
                                   matrix("model.layers.0.self_attn.q_proj.weight"),
                                   matrix("lm_head.weight")};
    job::Job job;
    job.dtype = DType::float64;
    job.optimizer.name = job::OptimizerName::muon;
    make_optimizer(job, model::preset("llama-1m"), list, communicator)->step(0.1, 1.0);
    // AdamW's first step is the learning rate; a matrix of ones has one singular value, and moves along it.
    EXPECT_NEAR(list[0].value[0][0].item<double>(), 0.9, 1e-7);
    EXPECT_NEAR(list[2].value[3][3].item<double>(), 0.9, 1e-7);
    const double moved = 1 - list[1].value[2][1].item<double>();
    EXPECT_GT(moved, 0.1 * 0.2 * 2 * 0.25 * 0.6);
    EXPECT_LT(moved, 0.1 * 0.2 * 2 * 0.25 * 1.3);
  });
}

}  // namespace
}  // namespace ndmesh::train
