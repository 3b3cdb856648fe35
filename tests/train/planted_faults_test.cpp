#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "ndmesh/nn/decoder.h"
#include "ndmesh/parallel/fully_shard.h"
#include "ndmesh/parallel/replicate.h"
#include "ndmesh/train/batches.h"
#include "ndmesh/train/gradient_norm.h"
#include "ndmesh/train/initial_values.h"
#include "ndmesh/train/inputs.h"
#include "ndmesh/train/optimizer.h"
#include "ndmesh/train/parity.h"
#include "train/gathered.h"
#include "train/models.h"
#include "train/scratch_folder.h"

/// A training loop of its own, built from the same parts, into which the classic mistakes of data parallelism
/// can be planted: the parity check must see each of them, and must see none where there is none.
namespace ndmesh::train {
namespace {

enum class Fault {
  none,
  no_reduction,
  norm_of_own_part_only,
  every_rank_reads_the_same,
  no_accumulation,
  momentum_taken_for_whole,
};

/// As if what this rank owns of each parameter were all of it.
std::vector<parallel::Trainable> taken_for_whole(std::vector<parallel::Trainable> trainables,
                                                 const mesh::Mesh& mesh) {
  for (parallel::Trainable& trainable : trainables) {
    trainable.layout = layout::TensorLayout(trainable.value.sizes().vec(), {}, mesh);
  }
  return trainables;
}

class FaultyRank {
 public:
  FaultyRank(const Inputs& inputs, comm::Communicator& communicator, Fault fault)
      : inputs_(inputs), communicator_(communicator), fault_(fault), model_(inputs.model, at::kDouble) {
    const bool sharded = inputs.job.mesh.dp_shard > 1;
    const mesh::AxisSet axes = fault == Fault::no_reduction ? mesh::AxisSet{} : mesh::loss_axes;
    layout_ = sharded
                  ? parallel::fully_shard(model_, communicator)
                  : std::shared_ptr<parallel::DataParallel>(parallel::replicate(model_, communicator, axes));
    fill_fresh(layout_->parameters(), inputs.model, 1, communicator.rank());
    layout_->parameters_changed();
    optimizer_ = make_optimizer(inputs.job, inputs.model,
                                fault == Fault::momentum_taken_for_whole
                                    ? taken_for_whole(layout_->trainables(), communicator.mesh())
                                    : layout_->trainables(),
                                communicator);
  }

  void step(std::int64_t number, Trajectory* trajectory) {
    const double loss = forward_backward(number);
    std::map<std::string, at::Tensor> gradients = test::gradients_of(*layout_);
    if (trajectory != nullptr) {
      trajectory->losses.push_back(loss);
      trajectory->gradients.push_back(std::move(gradients));
    }
    optimizer_->step(inputs_.job.optimizer.lr, clip_factor(norm(), inputs_.job.train.clip));
    layout_->parameters_changed();
  }

 private:
  double forward_backward(std::int64_t number) {
    const std::int64_t ranks = communicator_.world();
    const std::int64_t rank = fault_ == Fault::every_rank_reads_the_same ? 0 : communicator_.rank();
    const SampleOrder order(inputs_.tokens->size(), inputs_.job.batch.seq_len, inputs_.job.data.shuffle, 1);
    const auto batches = BatchReader(*inputs_.tokens, order, inputs_.job.batch, ranks, rank).read(number);
    const double scale = 1.0 / static_cast<double>(inputs_.job.batch.global * inputs_.job.batch.seq_len);
    const at::Tensor loss = at::zeros({1}, at::TensorOptions().dtype(at::kDouble));
    for (std::size_t i = 0; i < batches.size(); ++i) {
      layout_->begin_micro_batch(i + 1 == batches.size());
      const at::Tensor mine = model_.loss(batches[i].ids_BS, batches[i].targets_BS, scale, 7);
      loss.add_(mine.item<double>());
      mine.backward();
      if (fault_ == Fault::no_accumulation && i + 1 < batches.size()) {
        communicator_.everyone().barrier(
            "backward is over");        // before, peers may still read this rank's values
        layout_->parameters_changed();  // forgets what has come so far
      }
    }
    layout_->finish_backward();
    communicator_.everyone().all_reduce({loss}, comm::Reduction::sum, "loss");
    return loss.item<double>();
  }

  double norm() {
    if (fault_ != Fault::norm_of_own_part_only) {
      return global_gradient_norm(layout_->trainables(), communicator_);
    }
    double squares = 0;
    for (const parallel::Trainable& trainable : layout_->trainables()) {
      squares += trainable.gradient.square().sum().item<double>();
    }
    return std::sqrt(squares);
  }

  const Inputs& inputs_;
  comm::Communicator& communicator_;
  Fault fault_;
  nn::Decoder model_;
  std::shared_ptr<parallel::DataParallel> layout_;
  std::unique_ptr<Optimizer> optimizer_;
};

Difference difference_with(Fault fault, const std::string& mesh, const std::string& optimizer = "adamw") {
  const ScratchFolder folder;
  job::Job job = test::tiny_job(folder.path(), "tiny", {"optimizer.name=" + optimizer});
  job.train.steps = 3;
  const Trajectory reference = record_trajectory(job);
  job.mesh = mesh::parse_mesh(mesh);
  const Inputs inputs = open_inputs(job);
  Trajectory faulty;
  comm::run_ranks(mesh::Mesh(job.mesh), {}, [&](comm::Communicator& communicator) {
    FaultyRank rank(inputs, communicator, fault);
    for (std::int64_t step = 0; step < job.train.steps; ++step) {
      rank.step(step, communicator.rank() == 0 ? &faulty : nullptr);
    }
  });
  return largest_difference(reference, faulty);
}

void expect_seen(Fault fault, const std::string& mesh, const std::string& optimizer = "adamw") {
  const Difference found = difference_with(fault, mesh, optimizer);
  const Tolerance tolerance = tolerance_of(DType::float64);
  EXPECT_GT(found.gradient, 1e4 * tolerance.gradient) << mesh;
}

TEST(PlantedFaults, NoneIsSeenWhereThereIsNone) {
  for (const char* mesh : {"dp_replicate=2", "dp_shard=2"}) {
    for (const char* optimizer : {"adamw", "muon"}) {
      const Difference found = difference_with(Fault::none, mesh, optimizer);
      EXPECT_LT(found.loss, tolerance_of(DType::float64).loss) << mesh << ", " << optimizer;
      EXPECT_LT(found.gradient, tolerance_of(DType::float64).gradient) << mesh << ", " << optimizer;
    }
  }
}

TEST(PlantedFaults, GradientNotReduced) {
  expect_seen(Fault::no_reduction, "dp_replicate=2");
}

TEST(PlantedFaults, NormOfTheOwnPartOnly) {
  expect_seen(Fault::norm_of_own_part_only, "dp_shard=2");
}

TEST(PlantedFaults, EveryRankReadsTheSame) {
  expect_seen(Fault::every_rank_reads_the_same, "dp_replicate=2");
}

TEST(PlantedFaults, AccumulationForgotten) {
  expect_seen(Fault::no_accumulation, "dp_replicate=2");
  expect_seen(Fault::no_accumulation, "dp_shard=2");
}

TEST(PlantedFaults, MomentumOfTheOwnPartOnly) {
  expect_seen(Fault::momentum_taken_for_whole, "dp_shard=2", "muon");
}

}  // namespace
}  // namespace ndmesh::train
