// Trains a model of one's own on any number of ranks, saves its parameters, and loads them on one rank:
//
//   own_model [RANKS [STEPS]]    (2 ranks, 200 steps)
#include <ndmesh/base/error.h>
#include <ndmesh/comm/world.h>
#include <ndmesh/parallel/fully_shard.h>
#include <ndmesh/parallel/recompute.h>
#include <ndmesh/parallel/replicate.h>
#include <ndmesh/train/adamw.h>
#include <ndmesh/train/gradient_norm.h>
#include <ndmesh/train/parameter_file.h>

#include <cstdio>
#include <cstdlib>

#include "pairs.h"
#include "two_tower.h"

using namespace ndmesh;

namespace {

constexpr std::int64_t batch = 64;  // pairs of all ranks
constexpr const char* file = "two_tower.safetensors";

/// The part of a batch that this rank sees.
own_model::Pairs own_pairs(const own_model::Sizes& sizes, const comm::Communicator& ranks,
                           std::int64_t first) {
  const layout::Range mine = layout::split(batch, ranks.world(), ranks.rank());
  return own_model::pairs(first + mine.start, mine.size, sizes.vocabulary, sizes.dtype);
}

/// Adds up a number over the ranks.
double sum(double value, comm::Communicator& ranks) {
  const at::Tensor total = at::full({1}, value, at::kDouble);
  ranks.everyone().all_reduce({total}, comm::Reduction::sum, "sum");
  return total.item<double>();
}

void train_on(comm::Communicator& ranks, int steps) {
  const own_model::Sizes sizes;
  own_model::TwoTower model(sizes);
  for (const auto& block : model.blocks()) {
    parallel::recompute(*block,
                        parallel::Recomputed::all);  // keep a block's input, run the rest again in backward
    parallel::fully_shard(*block, ranks);            // bottom-up: the units,
  }
  const auto layout = parallel::fully_shard(model, ranks);               // then the root,
  train::AdamW optimizer({.weight_decay = 0.01}, layout->trainables());  // then the optimizer

  for (int step = 1; step <= steps; ++step) {
    const own_model::Pairs pairs = own_pairs(sizes, ranks, step * batch);
    layout->begin_micro_batch(/*last=*/true);
    const at::Tensor odds_B = model.forward(pairs.queries_BW, pairs.documents_BW);
    const at::Tensor loss = own_model::loss_sum(odds_B, pairs.answers_B) * (1.0 / batch);
    loss.backward();
    layout->finish_backward();
    const double norm = train::global_gradient_norm(layout->trainables(), ranks);
    optimizer.step(/*lr=*/1e-2, train::clip_factor(norm, /*most=*/1.0));
    layout->parameters_changed();
    const double whole_loss = sum(loss.item<double>(), ranks);
    if (ranks.rank() == 0 && step % 50 == 0) {
      std::printf("step %3d  loss %.4f  gradient norm %.3f\n", step, whole_loss, norm);
    }
  }
  train::save_parameters(file, *layout, ranks);
}

/// Share of pairs that were not trained on and are judged rightly, by what the file says.
double accuracy(comm::Communicator& ranks) {
  const own_model::Sizes sizes;
  own_model::TwoTower model(sizes, /*seed=*/99);  // other values: the file's must count
  const auto layout = parallel::replicate(model, ranks, mesh::loss_axes);
  train::load_parameters(file, *layout, ranks);
  const at::NoGradGuard no_grad;
  const own_model::Pairs pairs = own_model::pairs(1'000'000, 1000, sizes.vocabulary, sizes.dtype);
  const at::Tensor odds_B = model.forward(pairs.queries_BW, pairs.documents_BW);
  return (odds_B > 0).eq(pairs.answers_B > 0.5).to(at::kDouble).mean().item<double>();
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 200;
  try {
    comm::run_ranks(mesh::Mesh({.dp_shard = ranks}), {},
                    [&](comm::Communicator& communicator) { train_on(communicator, steps); });
    comm::run_ranks(mesh::Mesh({}), {}, [](comm::Communicator& one) {
      std::printf("%s: %.1f %% of 1000 new pairs are judged rightly\n", file, 100 * accuracy(one));
    });
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
