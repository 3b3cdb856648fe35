#include "ndmesh/parallel/pipeline.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <mutex>
#include <random>

#include "ndmesh/base/error.h"
#include "ndmesh/layout/layout.h"
#include "ndmesh/train/parity.h"
#include "ndmesh/train/trainer.h"
#include "train/gathered.h"
#include "train/models.h"
#include "train/scratch_folder.h"

/// Pipelines that train: what others got wrong (tied tables, norms, short batches), and that the executor does what the
/// schedule says.
namespace ndmesh::train {
namespace {

using mesh::MeshSizes;
using schedule::Action;
using schedule::ActionKind;
using schedule::Kind;
using testing::HasSubstr;

job::Job pipeline_job(const ScratchFolder& folder, const std::string& variant, std::int64_t pp,
                      const std::vector<std::string>& levers = {}) {
  job::Job job = test::tiny_job(folder.path(), variant, levers);
  job.mesh.pp = pp;
  return job;
}

/// Runs `body` on every rank with a trainer of the job.
void with_trainers(const job::Job& job, const std::function<void(Trainer&, comm::Communicator&)>& body,
                   const Trainer::GradientObserver& observer = {}) {
  const Inputs inputs = open_inputs(job);
  comm::run_ranks(mesh::Mesh(job.mesh), {}, [&](comm::Communicator& communicator) {
    Trainer trainer(inputs, communicator, observer);
    body(trainer, communicator);
  });
}

struct Performed {
  std::vector<Action> actions;
  std::int64_t most_in_flight = 0;
};

/// What each rank of a pipeline does in one step, and the most passes between their forward and their (weight) gradient.
std::vector<Performed> performed(const job::Job& job) {
  const Inputs inputs = open_inputs(job);
  std::vector<Performed> ranks(static_cast<std::size_t>(job.mesh.pp));
  comm::run_ranks(mesh::Mesh(job.mesh), {}, [&](comm::Communicator& communicator) {
    Performed& mine = ranks[static_cast<std::size_t>(communicator.rank())];
    parallel::ParallelModel model(inputs.model, job, at::kDouble, communicator);
    for (const parallel::OwnedParameter& parameter : model.parameters()) {
      parameter.value.fill_(0.01);
    }
    model.parameters_changed();
    std::int64_t in_flight = 0;
    model.observe([&](const Action& action, double, double) {
      mine.actions.push_back(action);
      in_flight += action.kind == ActionKind::forward ? 1 : 0;
      mine.most_in_flight = std::max(mine.most_in_flight, in_flight);
      in_flight -= action.kind == ActionKind::backward || action.kind == ActionKind::weight_grad ? 1 : 0;
    });
    const at::Tensor ids = at::zeros({1, 4}, at::kLong);
    const std::vector<MicroBatch> batches(static_cast<std::size_t>(job::accumulation(job)), {ids, ids});
    model.forward_backward(batches, {});
  });
  return ranks;
}

TEST(Pipeline, DoesWhatTheScheduleSaysInItsOrder) {
  const ScratchFolder folder;
  std::mt19937 random(3);
  const auto up_to = [&](std::int64_t most) { return 1 + static_cast<std::int64_t>(random()) % most; };
  constexpr Kind kinds[] = {Kind::gpipe, Kind::one_f_one_b, Kind::interleaved, Kind::zb_h1, Kind::zb_v};
  for (int round = 0; round < 24; ++round) {
    job::Job job = pipeline_job(folder, "tied_8", 1 + up_to(3));
    job.pipeline.schedule = kinds[round % 5];
    job.pipeline.chunks = job.pipeline.schedule == Kind::interleaved && job.mesh.pp == 2 ? up_to(3) + 1 : 0;
    job.batch = {.global = up_to(9), .micro = 1, .seq_len = 4};
    const schedule::Shape shape = job::pipeline_shape(job);
    if (!schedule::problems_of(shape).empty()) {
      continue;
    }
    SCOPED_TRACE(std::string(name_of(shape.kind)) + " " + std::to_string(shape.ranks) + " x " +
                 std::to_string(shape.chunks) + ", " + std::to_string(shape.micro_batches));
    schedule::Schedule expected = schedule::with_sharding(schedule::make_schedule(shape), false);
    const std::vector<Performed> found = performed(job);
    for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      EXPECT_EQ(found[r].actions, expected.ranks[r]) << "rank " << rank;
      EXPECT_EQ(found[r].most_in_flight, schedule::peak_in_flight(shape, rank)) << "rank " << rank;
    }
  }
}

/// tiny-T: one table, used by the first and by the last stage.
TEST(Pipeline, CopiesOfATiedTableStayBitwiseEqual) {
  const ScratchFolder folder;
  for (const auto& [pp, kind] : {std::pair(2, Kind::one_f_one_b), {5, Kind::gpipe}, {2, Kind::zb_v}}) {
    job::Job job = pipeline_job(folder, "tied_5", pp);
    job.pipeline.schedule = kind;
    std::mutex mutex;
    std::vector<at::Tensor> tables;
    const Inputs inputs = open_inputs(job);
    EXPECT_EQ(inputs.model.parameter_count(), 167'904);
    comm::run_ranks(mesh::Mesh(job.mesh), {}, [&](comm::Communicator& communicator) {
      parallel::ParallelModel* model = nullptr;
      Trainer trainer(inputs, communicator,
                      [&](std::int64_t, parallel::ParallelModel& its) { model = &its; });
      for (int step = 0; step < 10; ++step) {
        trainer.step();
      }
      for (const parallel::OwnedParameter& parameter : model->parameters()) {
        if (parameter.name == "model.embed_tokens.weight") {
          const std::lock_guard lock(mutex);
          tables.push_back(parameter.value.clone());
        }
      }
    });
    ASSERT_EQ(tables.size(), 2) << "pp " << pp;
    EXPECT_TRUE(at::equal(tables[0], tables[1])) << "pp " << pp;
  }
}

/// The printed norm is that of all stages together.
TEST(Pipeline, GradientNormIsThatOfOneRank) {
  const ScratchFolder folder;
  for (const char* variant : {"tiny_5", "tied_5"}) {
    std::vector<double> norms;
    for (const std::int64_t pp : {1, 2, 5}) {
      with_trainers(pipeline_job(folder, variant, pp),
                    [&](Trainer& trainer, comm::Communicator& communicator) {
                      const double norm = trainer.step().grad_norm;
                      if (communicator.rank() == communicator.world() - 1) {
                        norms.push_back(norm);
                      }
                    });
    }
    EXPECT_NEAR(norms[1] / norms[0], 1, 1e-12) << variant;
    EXPECT_NEAR(norms[2] / norms[0], 1, 1e-12) << variant;
  }
}

/// 8 sequences in pieces of 3, 3 and 2: messages have the shape of the piece, and every token weighs the same.
TEST(Pipeline, ShortMicroBatchCountsAsItIs) {
  const ScratchFolder folder;
  const auto rows = [](std::int64_t first, std::int64_t count) {
    const at::Tensor tokens = (at::arange(17, at::kLong).unsqueeze(0) * 31 +
                               at::arange(first, first + count, at::kLong).unsqueeze(1) * 97)
                                  .remainder(257);
    return MicroBatch{tokens.narrow(1, 0, 16).contiguous(), tokens.narrow(1, 1, 16).contiguous()};
  };
  const auto first_step = [&](std::int64_t pp, Kind kind, const std::vector<MicroBatch>& batches) {
    job::Job job = pipeline_job(folder, "tiny_5", pp);
    job.pipeline.schedule = kind;
    Trajectory result;
    std::map<std::string, at::Tensor> gradients;
    with_trainers(
        job,
        [&](Trainer& trainer, comm::Communicator& communicator) {
          const double loss = trainer.step(batches).loss;
          if (communicator.rank() == 0) {
            result.losses = {loss};
          }
        },
        [&](std::int64_t, parallel::ParallelModel& model) {
          std::map<std::string, at::Tensor> mine = test::gradients_of(model);
          static std::mutex mutex;
          const std::lock_guard lock(mutex);
          gradients = std::move(mine);
        });
    result.gradients = {gradients};
    return result;
  };
  const Trajectory whole = first_step(1, Kind::one_f_one_b, {rows(0, 8)});
  const std::vector<MicroBatch> pieces = {rows(0, 3), rows(3, 3), rows(6, 2)};
  for (const Kind kind : {Kind::gpipe, Kind::one_f_one_b, Kind::interleaved, Kind::zb_h1, Kind::zb_v}) {
    const Difference found = largest_difference(whole, first_step(2, kind, pieces));
    EXPECT_LT(found.loss, 1e-12) << name_of(kind);
    EXPECT_LT(found.gradient, 1e-10) << name_of(kind) << ", " << found.worst_parameter;
  }
}

/// A list of one's own: two stages that go there and back, with backwards whole and in halves.
TEST(Pipeline, RunsAScheduleFromAFile) {
  const ScratchFolder folder;
  const std::string file = (folder / "own.schedule").string();
  std::ofstream(file) << "v\n"
                         "F0.0 F0.1 F1.0 B1.0 F1.1 I1.1 B0.0 W1.1 B0.1  # rank 0\n"
                         "F0.0 F1.0 F0.1 F1.1 B1.0 I0.0 B1.1 W0.0 B0.1  # rank 1\n";
  job::Job job =
      pipeline_job(folder, "tied_5", 2, {"pipeline.schedule=" + file, "pipeline.layers=[2, 1, 1, 1]"});
  job.batch.global = 4;
  job.batch.micro = 2;
  job::Job single = job;
  single.mesh = {};
  const Difference found = largest_difference(record_trajectory(single), record_trajectory(job));
  EXPECT_LT(found.loss, 1e-12);
  EXPECT_LT(found.gradient, 1e-10) << found.worst_parameter;

  job.batch.global = 6;
  std::ofstream(file) << "F0.0 F0.1 B0.1\nF0.0 B0.0 F0.1 B0.1\n";
  job = job::parse_job(job::resolved_yaml(job), "own.yaml", {"pipeline.layers=even"});
  try {
    open_inputs(job);
    FAIL() << "a list with defects was accepted";
  } catch (const RequestError& error) {
    EXPECT_THAT(
        error.problems(),
        testing::IsSupersetOf({HasSubstr("is for 2 ranks and 2 micro-batches"),
                               HasSubstr("rank 0, chunk 0, micro-batch 0: neither backward nor both")}));
  }
}

/// Fewer micro-batches than stages: most ranks wait for most of the time, and all finish.
TEST(Pipeline, OneMicroBatchIsEnough) {
  const ScratchFolder folder;
  for (const Kind kind : {Kind::gpipe, Kind::one_f_one_b, Kind::zb_h1}) {
    job::Job job = pipeline_job(folder, "tiny_5", 5);
    job.pipeline.schedule = kind;
    job.batch = {.global = 1, .micro = 1, .seq_len = 16};
    job.train.steps = 2;
    job::Job single = job;
    single.mesh = {};
    const Difference found = largest_difference(record_trajectory(single), record_trajectory(job));
    EXPECT_LT(found.loss, 1e-12) << name_of(kind);
    EXPECT_LT(found.gradient, 1e-10) << name_of(kind);
  }
}

TEST(Pipeline, EvaluationAndTheSavedModelAreThoseOfOneRank) {
  const ScratchFolder folder;
  std::map<std::string, double> losses;
  std::map<std::string, std::string> files;
  for (const auto& [mesh, kind] : {std::pair("1", Kind::gpipe),
                                   {"pp=2", Kind::interleaved},
                                   {"pp=2,dp_shard=2", Kind::zb_v},
                                   {"pp=5", Kind::one_f_one_b}}) {
    job::Job job = pipeline_job(folder, "tied_5", 1);
    job.mesh = mesh::parse_mesh(mesh);
    job.pipeline.schedule = kind;
    job.data.eval_files = job.data.files;
    job.train.eval_batches = 2;
    with_trainers(job, [&, name = std::string(mesh)](Trainer& trainer, comm::Communicator& communicator) {
      trainer.save_model(folder / ("saved " + name));
      const double loss = trainer.evaluate();
      if (communicator.rank() == communicator.world() - 1) {
        losses[name] = loss;
      }
    });
    std::ifstream file(folder / ("saved " + std::string(mesh)) / "model.safetensors", std::ios::binary);
    files[mesh] = std::string(std::istreambuf_iterator<char>(file), {});
  }
  for (const auto& [mesh, loss] : losses) {
    EXPECT_NEAR(loss / losses.at("1"), 1, 1e-12) << mesh;
    EXPECT_EQ(files.at(mesh), files.at("1")) << mesh;
  }
  EXPECT_GT(files.at("1").size(), 671'616);  // tiny-T in float32: every tensor once
}

}  // namespace
}  // namespace ndmesh::train
