#include "ndmesh/train/trainer.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "ndmesh/base/error.h"
#include "ndmesh/nn/functional.h"
#include "ndmesh/parallel/replicate.h"
#include "ndmesh/train/initial_values.h"
#include "ndmesh/train/parity.h"
#include "train/gathered.h"
#include "train/models.h"
#include "train/scratch_folder.h"

/// One step under conditions that token files do not bring about: targets masked unevenly, a gradient spoilt on one
/// rank, a head of zeros.
namespace ndmesh::train {
namespace {

using mesh::MeshSizes;
using test::gradients_of;
using testing::HasSubstr;

constexpr std::int64_t length = 16;

/// Row `number`, of which the first `valid` targets count.
MicroBatch row(std::int64_t number, std::int64_t valid) {
  const at::Tensor tokens =
      (at::arange(length + 1, at::kLong) * 31 + number * 97).remainder(257).unsqueeze(0);
  at::Tensor targets = tokens.narrow(1, 1, length).clone();
  targets.narrow(1, valid, length - valid).fill_(nn::ignored);
  return {tokens.narrow(1, 0, length).contiguous(), targets};
}

/// Rows first .. first + count - 1 of those that `valid` describes, as one micro-batch.
MicroBatch rows(const std::vector<std::int64_t>& valid, std::int64_t first, std::int64_t count) {
  std::vector<at::Tensor> ids, targets;
  for (std::int64_t number = first; number < first + count; ++number) {
    const MicroBatch one = row(number, valid[static_cast<std::size_t>(number)]);
    ids.push_back(one.ids_BS);
    targets.push_back(one.targets_BS);
  }
  return {at::cat(ids), at::cat(targets)};
}

/// This rank's part of the rows, in micro-batches of `micro`.
std::vector<MicroBatch> part_of(const std::vector<std::int64_t>& valid, std::int64_t micro,
                                const comm::Communicator& communicator) {
  const std::int64_t mine =
      static_cast<std::int64_t>(valid.size()) / communicator.mesh().size(mesh::batch_axes);
  const std::int64_t first = communicator.mesh().index_in(communicator.rank(), mesh::batch_axes) * mine;
  std::vector<MicroBatch> batches;
  for (std::int64_t done = 0; done < mine; done += micro) {
    batches.push_back(rows(valid, first + done, micro));
  }
  return batches;
}

std::map<std::string, at::Tensor> values_of(parallel::ParallelModel& model) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> values;
  for (const std::string& name : model.names()) {
    values[name] = model.gather_value(name).clone();
  }
  return values;
}

/// All rows in one batch on one rank, with libtorch's own mean over the valid targets of whole logits.
Trajectory reference(const Inputs& inputs, const std::vector<std::int64_t>& valid) {
  Trajectory result;
  comm::run_ranks(mesh::Mesh(MeshSizes{}), {}, [&](comm::Communicator& communicator) {
    nn::Decoder model(inputs.model, at::kDouble);
    const auto layout = parallel::replicate(model, communicator, mesh::loss_axes);
    fill_fresh(layout->parameters(), inputs.model, static_cast<std::uint64_t>(inputs.job.run.seed), 0);
    layout->parameters_changed();
    layout->begin_micro_batch(true);
    const MicroBatch all = rows(valid, 0, static_cast<std::int64_t>(valid.size()));
    const at::Tensor loss =
        at::cross_entropy_loss(model.logits(all.ids_BS).flatten(0, 1), all.targets_BS.flatten(), {},
                               at::Reduction::Mean, nn::ignored);
    loss.backward();
    layout->finish_backward();
    result = {{loss.item<double>()}, {gradients_of(*layout)}};
  });
  return result;
}

/// The first step of the trainer over the same rows.
Trajectory first_step(const Inputs& inputs, const std::vector<std::int64_t>& valid, std::int64_t micro) {
  Trajectory result;
  comm::run_ranks(mesh::Mesh(inputs.job.mesh), {}, [&](comm::Communicator& communicator) {
    Trajectory mine;
    Trainer trainer(inputs, communicator, [&](std::int64_t, parallel::ParallelModel& layout) {
      mine.gradients.push_back(gradients_of(layout));
    });
    mine.losses.push_back(trainer.step(part_of(valid, micro, communicator)).loss);
    if (communicator.rank() == 0) {
      result = mine;
    }
  });
  return result;
}

struct Masked {
  std::vector<std::int64_t> valid;  ///< targets of each row
  MeshSizes mesh;
  std::int64_t micro;
  std::int64_t zero = 3;
};

/// Every valid token of the step weighs the same, in whatever micro-batch and on whatever rank it is.
TEST(TrainerStep, DividesByTheValidTargetsOfAllMicroBatchesAndRanks) {
  const ScratchFolder folder;
  for (const Masked& one : std::vector<Masked>{{{10, 2, 4}, {}, 1},
                                               {{10, 2, 4}, {}, 3},
                                               {{10, 2, 4}, {.dp_replicate = 3}, 1},
                                               {{10, 2, 4}, {.dp_shard = 3}, 1},
                                               {{10, 2, 4}, {.dp_shard = 3}, 1, 2},
                                               {{16, 16, 3, 7}, {.dp_replicate = 2}, 1},
                                               {{16, 16, 3, 7}, {.dp_shard = 2}, 2, 1},
                                               {{10, 2, 4, 7}, {.dp_shard = 2, .dp_replicate = 2}, 1},
                                               {{6, 0}, {}, 1},
                                               {{6, 0}, {.dp_replicate = 2}, 1},
                                               {{6, 0}, {.dp_shard = 2}, 1},
                                               {{0, 5, 0, 0}, {.dp_shard = 2}, 1, 1}}) {
    job::Job job = test::tiny_job(folder.path());
    job.mesh = one.mesh;
    job.shard.zero = one.zero;
    const Inputs inputs = open_inputs(job);
    const Difference found =
        largest_difference(reference(inputs, one.valid), first_step(inputs, one.valid, one.micro));
    const std::string name = one.mesh.name() + ", " + testing::PrintToString(one.valid);
    EXPECT_LT(found.loss, tolerance_of(DType::float64).loss) << name;
    EXPECT_LT(found.gradient, tolerance_of(DType::float64).gradient) << name << ", " << found.worst_parameter;
  }
}

TEST(TrainerStep, WithoutAnyValidTargetChangesNothing) {
  const ScratchFolder folder;
  for (const MeshSizes& sizes : {MeshSizes{}, {.dp_replicate = 2}, {.dp_shard = 2}}) {
    job::Job job = test::tiny_job(folder.path());
    job.mesh = sizes;
    const Inputs inputs = open_inputs(job);
    comm::run_ranks(mesh::Mesh(sizes), {}, [&](comm::Communicator& communicator) {
      parallel::ParallelModel* model = nullptr;
      std::map<std::string, at::Tensor> before;
      Trainer trainer(inputs, communicator, [&](std::int64_t, parallel::ParallelModel& layout) {
        model = &layout;
        before = values_of(layout);
      });
      const measure::StepReport report = trainer.step(part_of({0, 0}, 1, communicator));
      EXPECT_EQ(report.loss, 0.0);
      EXPECT_EQ(report.grad_norm, 0.0);
      EXPECT_EQ(report.tokens, 0);
      for (const auto& [name, value] : values_of(*model)) {
        EXPECT_TRUE(at::equal(value, before.at(name))) << name << " on " << sizes.name();
      }
    });
  }
}

/// Whatever only one rank sees, even one of several copies, is a decision of all.
TEST(TrainerStep, GradientSpoiltOnOneRankStopsAllBeforeTheUpdate) {
  const ScratchFolder folder;
  struct Case {
    MeshSizes sizes;
    const char* variant;
    std::string spoilt;
    std::string rank;  ///< as the message names it
  };
  const std::string layer_1 = "model.layers.1.mlp.up_proj.weight";
  for (const auto& [sizes, variant, spoilt, rank] :
       {Case{{.dp_replicate = 4}, "tiny", layer_1, "rank 3"},
        {{.dp_shard = 4}, "tiny", layer_1, "rank 3"},
        {{.dp_shard = 2, .dp_replicate = 2}, "tiny", layer_1, "rank 3"},
        {{.dp_shard = 2, .pp = 2}, "tiny_5", "model.layers.4.mlp.up_proj.weight", "rank 3 (pp 1)"}}) {
    job::Job job = test::tiny_job(folder.path(), variant);
    job.mesh = sizes;
    const Inputs inputs = open_inputs(job);
    std::vector<std::string> messages(4);
    comm::run_ranks(mesh::Mesh(job.mesh), {}, [&, &bad = spoilt](comm::Communicator& communicator) {
      parallel::ParallelModel* model = nullptr;
      std::map<std::string, at::Tensor> before;
      Trainer trainer(inputs, communicator, [&](std::int64_t step, parallel::ParallelModel& layout) {
        model = &layout;
        before = values_of(layout);
        for (const parallel::Trainable& trainable : layout.trainables()) {
          if (step == 2 && communicator.rank() == 3 && trainable.name == bad) {
            trainable.gradient.view(-1)[5].fill_(std::numeric_limits<double>::quiet_NaN());
          }
        }
      });
      trainer.step();
      try {
        trainer.step();
      } catch (const RunError& error) {
        messages[static_cast<std::size_t>(communicator.rank())] = error.what();
      }
      for (const auto& [name, value] : values_of(*model)) {
        EXPECT_TRUE(at::equal(value, before.at(name))) << name << " on " << job.mesh.name();
      }
    });
    EXPECT_THAT(messages, testing::Each(HasSubstr("step 2: the gradient is not finite (" + rank + ": " +
                                                  spoilt + ")")));
  }
}

/// ln 257, where bfloat16 knows 5.53125 and 5.5625 only.
TEST(TrainerStep, LossOfAZeroHeadIsTheLogOfTheVocabulary) {
  const ScratchFolder folder;
  job::Job job = test::tiny_job(folder.path());
  const model::ModelSpec model = job::model_of(job);
  std::map<std::string, at::Tensor> values;
  for (const model::ParameterSpec& parameter : model.parameters()) {
    const at::Tensor numbers = at::arange(parameter.elements(), at::kFloat).reshape(parameter.shape);
    values[parameter.name] = numbers.cos() * (parameter.role == model::Role::head ? 0.0 : 0.1);
  }
  write_model_folder(folder / "zero_head", model, DType::float32,
                     [&](const std::string& name) { return values.at(name); });
  job.model.path = (folder / "zero_head").string();
  for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
    for (const MeshSizes& sizes : {MeshSizes{}, {.dp_replicate = 2}, {.dp_shard = 3}}) {
      job.dtype = dtype;
      job.mesh = sizes;
      job.train.steps = 1;
      EXPECT_NEAR(record_trajectory(job).losses.front(), 5.549076, 3e-6)
          << name_of(dtype) << " on " << sizes.name();
    }
  }
}

/// Neither ranks nor micro-batches turn the schedule.
TEST(TrainerStep, LearningRateDependsOnTheStepAlone) {
  const ScratchFolder folder;
  for (const auto& [sizes, micro] :
       {std::pair(MeshSizes{}, 6), std::pair(MeshSizes{}, 3), std::pair(MeshSizes{.dp_replicate = 2}, 3),
        std::pair(MeshSizes{.dp_shard = 3}, 1)}) {
    job::Job job = test::tiny_job(folder.path());
    job.mesh = sizes;
    job.batch = {.global = 6, .micro = micro, .seq_len = 4};
    job.train.steps = 10;
    job.optimizer.lr = 1.0 / 64;
    job.lr_schedule = {job::ScheduleKind::cosine, /*warmup=*/2, /*final_ratio=*/0.0};
    const Inputs inputs = open_inputs(job);
    comm::run_ranks(mesh::Mesh(sizes), {}, [&](comm::Communicator& communicator) {
      Trainer trainer(inputs, communicator);
      std::vector<double> rates;
      for (int step = 1; step <= 10; ++step) {
        rates.push_back(64 * trainer.step().lr);
      }
      EXPECT_DOUBLE_EQ(rates[0], 0.5);
      EXPECT_DOUBLE_EQ(rates[1], 1.0);
      EXPECT_NEAR(rates[5], 0.5, 1e-15);
      EXPECT_NEAR(rates[9], 0.0, 1e-15);
    });
  }
}

/// The first global batch as evaluation data and as training data.
TEST(TrainerEvaluate, IsTheLossOfTheSameSamplesOnEveryMesh) {
  const ScratchFolder folder;
  job::Job job = test::tiny_job(folder.path());
  job.data.shuffle = false;
  job.data.eval_files = job.data.files;
  job.train.eval_batches = 1;
  job.train.steps = 1;
  const double right = record_trajectory(job).losses.front();
  for (const MeshSizes& sizes : {MeshSizes{}, {.dp_replicate = 3}, {.dp_shard = 2}}) {
    job.mesh = sizes;
    const Inputs inputs = open_inputs(job);
    comm::run_ranks(mesh::Mesh(sizes), {}, [&](comm::Communicator& communicator) {
      EXPECT_NEAR(Trainer(inputs, communicator).evaluate() / right, 1.0, 1e-12) << sizes.name();
    });
  }
}

TEST(TrainerSave, ByOneRankOnlyNamesWhoIsMissingAndKeepsTheOlderModel) {
  const ScratchFolder folder;
  job::Job job = test::tiny_job(folder.path());
  job.mesh.dp_shard = 2;
  const Inputs inputs = open_inputs(job);
  std::string before;
  try {
    comm::run_ranks(mesh::Mesh(job.mesh), {}, [&](comm::Communicator& communicator) {
      Trainer trainer(inputs, communicator);
      trainer.save_model(folder / "model");
      trainer.step();
      if (communicator.rank() == 0) {
        before = contents(folder / "model" / "model.safetensors");
        trainer.save_model(folder / "model");
      }
    });
    FAIL() << "rank 0 saved alone";
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1"));
    EXPECT_THAT(error.what(), HasSubstr("value of "));
  }
  EXPECT_EQ(contents(folder / "model" / "model.safetensors"), before);
  EXPECT_FALSE(std::filesystem::exists(folder / "model.partial"));
}

}  // namespace
}  // namespace ndmesh::train
