#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ndmesh/base/error.h"
#include "ndmesh/layout/model_part.h"
#include "ndmesh/parallel/lay_out.h"
#include "ndmesh/parallel/parallel_model.h"
#include "ndmesh/parallel/partial_gradients.h"
#include "ndmesh/train/gradient_norm.h"
#include "ndmesh/train/initial_values.h"
#include "ndmesh/train/run.h"
#include "ndmesh/train/trainer.h"
#include "train/expect_parity.h"
#include "train/gathered.h"
#include "train/tensor_cases.h"

namespace ndmesh::train {
namespace {

using test::expect_parity;
using test::name_of_case;
using test::ParityCase;
using testing::ElementsAre;
using testing::HasSubstr;

class TensorParity : public testing::TestWithParam<ParityCase> {};
TEST_P(TensorParity, Holds) {
  expect_parity(GetParam());
}
INSTANTIATE_TEST_SUITE_P(, TensorParity, testing::ValuesIn(test::tensor_cases), name_of_case);

class SlowTensorParityGrid : public testing::TestWithParam<ParityCase> {};
TEST_P(SlowTensorParityGrid, Holds) {
  expect_parity(GetParam());
}
INSTANTIATE_TEST_SUITE_P(, SlowTensorParityGrid, testing::ValuesIn(test::tensor_grid()), name_of_case);

job::Job job_on(const ScratchFolder& folder, const std::string& variant, const std::string& mesh,
                const std::vector<std::string>& keys = {}) {
  job::Job job = test::tiny_job(folder.path(), variant, keys);
  job.batch.global = 12;
  job.batch.micro = 2;
  job.batch.seq_len += job.batch.seq_len == 16 ? 2 : 0;  // of the usual length: a multiple of 6
  job.mesh = mesh::parse_mesh(mesh);
  return job;
}

/// What tp replicates is the same on each of its ranks, bit for bit, after 5 steps.
TEST(TensorParallel, ReplicatedParametersStayEqual) {
  const ScratchFolder folder;
  for (const char* sequence : {"tensor.sequence_parallel=true", "tensor.sequence_parallel=false"}) {
    const Inputs inputs = open_inputs(job_on(folder, "qwen3", "tp=2", {sequence}));
    comm::run_ranks(mesh::Mesh(inputs.job.mesh), {}, [&](comm::Communicator& communicator) {
      Trainer trainer(inputs, communicator, [&](std::int64_t step, parallel::ParallelModel& model) {
        for (const parallel::OwnedParameter& parameter : model.parameters()) {
          if (parameter.name.find("norm") == std::string::npos || step < inputs.job.train.steps) {
            continue;
          }
          at::Tensor both = at::empty({2, parameter.value.numel()}, parameter.value.options());
          communicator.group({mesh::Axis::tp})
              .all_gather({both}, {parameter.value.view({1, -1})}, "both copies");
          EXPECT_TRUE(at::equal(both[0], both[1])) << parameter.name;
          EXPECT_FALSE(at::equal(both[0], at::ones_like(both[0]))) << parameter.name << " never changed";
        }
      });
      for (std::int64_t step = 0; step < inputs.job.train.steps; ++step) {
        trainer.step();
      }
    });
  }
}

/// Values depend on seed and name alone: gathered, they are the same bits on every mesh.
TEST(TensorParallel, InitialValuesDoNotDependOnTheMesh) {
  const ScratchFolder folder;
  for (const char* variant : {"tiny", "tied", "gpt2", "phi3"}) {
    std::map<std::string, at::Tensor> reference;
    for (const char* mesh : {"1", "tp=2", "tp=6", "tp=2,dp_shard=3"}) {
      const Inputs inputs = open_inputs(job_on(folder, variant, mesh));
      comm::run_ranks(mesh::Mesh(inputs.job.mesh), {}, [&](comm::Communicator& communicator) {
        const at::NoGradGuard no_grad;
        parallel::ParallelModel model(inputs.model, inputs.job, at::kDouble, communicator);
        fill_fresh(model.parameters(), inputs.model, 1, communicator.rank());
        for (const std::string& name : model.names()) {
          const at::Tensor whole = model.gather_value(name).clone();
          if (communicator.rank() != 0) {
            continue;
          }
          if (communicator.world() == 1) {
            reference[name] = whole;
          }
          EXPECT_TRUE(at::equal(whole, reference.at(name))) << mesh << ", " << name;
        }
      });
    }
  }
}

/// A model that tp trained is read by one rank, and the other way round; padding never shows.
TEST(TensorParallel, ModelFoldersDoNotDependOnTheMesh) {
  const ScratchFolder folder;
  for (const char* variant : {"tiny", "gpt2", "phi3"}) {
    const ScratchFolder first;
    const job::Job job = job_on(folder, variant, "tp=6", {"train.steps=1"});
    run_training(open_inputs(job), {first.path(), nullptr, {}});
    std::map<std::string, double> losses;
    for (const char* mesh : {"1", "tp=2", "tp=6", "tp=2,dp_shard=2"}) {
      const ScratchFolder second;
      job::Job next = job_on(folder, variant, mesh, {"train.steps=1"});
      next.model.path = (first.path() / "model").string();
      losses[mesh] = run_training(open_inputs(next), {second.path(), nullptr, {}}).last_loss;
    }
    for (const auto& [mesh, loss] : losses) {
      EXPECT_NEAR(loss, losses.at("1"), 1e-12 * loss) << variant << " on " << mesh;
    }
  }
}

TEST(TensorParallel, EvaluatesAsOneRank) {
  const ScratchFolder folder;
  std::vector<double> losses;
  for (const char* mesh : {"1", "tp=6", "tp=2,dp_shard=2"}) {
    job::Job job = job_on(folder, "tied", mesh, {"train.eval_batches=2"});
    job.data.eval_files = job.data.files;
    const Inputs inputs = open_inputs(job);
    comm::run_ranks(mesh::Mesh(job.mesh), {}, [&](comm::Communicator& communicator) {
      const double loss = Trainer(inputs, communicator).evaluate();
      if (communicator.rank() == 0) {
        losses.push_back(loss);
      }
    });
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-12 * losses[0]);
  EXPECT_NEAR(losses[2], losses[0], 1e-12 * losses[0]);
}

TEST(TensorParallel, RefusesWhatIsNotBuilt) {
  const ScratchFolder folder;
  const auto problems = [&](const std::string& variant, const std::string& mesh, const std::string& key) {
    const job::Job job = job_on(folder, variant, mesh, {key});
    try {
      job::check_trainable(job, job::model_of(job));
    } catch (const RequestError& error) {
      return error.problems();
    }
    return std::vector<std::string>{};
  };
  EXPECT_THAT(problems("tiny", "tp=2", "optimizer.name=muon"),
              ElementsAre(HasSubstr("optimizer.name muon with mesh.tp_size 2")));
  EXPECT_THAT(problems("tiny", "tp=4", "train.steps=5"),
              testing::Contains(HasSubstr("4 does not divide the 6 query heads")));
  EXPECT_THAT(problems("tiny", "tp=2", "batch.seq_len=17"),
              ElementsAre(HasSubstr("batch.seq_len: 17 is not a multiple of 2")));
}

// ------------------------------------------------------------------------------------------- planted faults

enum class Fault {
  none,
  missing_sum,       ///< of the gradients of norms, which see a part of the tokens
  norm_of_one_part,  ///< as if what tp cuts were whole
  norm_of_copies,    ///< shared KV heads count once for every rank that holds them
};

struct FirstStep {
  std::map<std::string, at::Tensor> gradients;
  double norm = 0;
};

FirstStep first_step(const job::Job& job, Fault fault) {
  const Inputs inputs = open_inputs(job);
  FirstStep result;
  comm::run_ranks(mesh::Mesh(job.mesh), {}, [&](comm::Communicator& communicator) {
    const parallel::ModelLayout layouts = parallel::model_layout(inputs.model, communicator.mesh(), {});
    nn::Decoder model(inputs.model,
                      layout::tensor_part(inputs.model, communicator.mesh(), communicator.rank(), true),
                      at::kDouble);
    const auto layout = parallel::lay_out(model, job, layouts, communicator);
    fill_fresh(layout->parameters(), inputs.model, 1, communicator.rank());
    layout->parameters_changed();
    layout->begin_micro_batch(true);
    const at::Tensor ids = at::arange(36, at::kLong).view({2, 18}) * 7;
    model.loss(ids, (ids * 3 + 1) % 257, 1.0 / 36, 7).backward();
    layout->finish_backward();
    if (fault != Fault::missing_sum) {
      parallel::PartialGradients(layouts, job::pipeline_shape(job), layout->trainables(), communicator).sum();
    }
    std::vector<parallel::Trainable> trainables = layout->trainables();
    for (parallel::Trainable& trainable : trainables) {
      const bool shared = trainable.name.find("k_proj") != std::string::npos ||
                          trainable.name.find("v_proj") != std::string::npos;
      const layout::Shape whole = trainable.value.sizes().vec();
      if (fault == Fault::norm_of_one_part) {
        trainable.layout = layout::TensorLayout(whole, {}, communicator.mesh());
      } else if (fault == Fault::norm_of_copies && shared) {
        const layout::Shape stacked = {whole[0] * communicator.world(), whole[1]};
        trainable.layout = layout::TensorLayout(stacked, {layout::Placement::shard({mesh::Axis::tp}, 0)},
                                                communicator.mesh());
      }
    }
    const double norm = global_gradient_norm(trainables, communicator);
    const auto gradients = test::gradients_of(*layout);
    if (communicator.rank() == 0) {
      result = {gradients, norm};
    }
  });
  return result;
}

TEST(TensorParallelFaults, AreSeen) {
  const ScratchFolder folder;
  const FirstStep reference = first_step(job_on(folder, "qwen3", "1"), Fault::none);
  const auto step = [&](Fault fault) { return first_step(job_on(folder, "qwen3", "tp=6"), fault); };
  const auto difference = [&](const FirstStep& found) {
    return largest_difference({{1.0}, {reference.gradients}}, {{1.0}, {found.gradients}}).gradient;
  };
  const FirstStep sound = step(Fault::none);
  EXPECT_LT(difference(sound), 1e-10);
  EXPECT_NEAR(sound.norm, reference.norm, 1e-10 * reference.norm);
  EXPECT_GT(difference(step(Fault::missing_sum)), 1e-3);
  EXPECT_GT(std::abs(step(Fault::norm_of_one_part).norm - reference.norm), 1e-3 * reference.norm);
  EXPECT_GT(std::abs(step(Fault::norm_of_copies).norm - reference.norm), 1e-6 * reference.norm);
}

}  // namespace
}  // namespace ndmesh::train
