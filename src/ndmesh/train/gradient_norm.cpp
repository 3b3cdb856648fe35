#include "ndmesh/train/gradient_norm.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ndmesh/parallel/box_views.h"

namespace ndmesh::train {
namespace {

/// Gradients, or parts of them, whose squares are summed over the same axes.
struct Squares {
  mesh::AxisSet axes;
  std::vector<at::Tensor> tensors;
  std::vector<double> copies;  ///< on how many ranks of the axes each of them lives

  double sum() const {
    if (tensors.empty()) {
      return 0;
    }
    double total = 0;
    const std::vector<at::Tensor> norms = at::_foreach_norm(tensors, 2, at::kDouble);
    for (std::size_t i = 0; i < norms.size(); ++i) {
      const double norm = norms[i].item<double>();
      total += norm * norm / copies[i];
    }
    return total;
  }
};

void add(Squares& squares, const parallel::Trainable& trainable, std::int64_t rank) {
  const std::vector<std::int64_t> copies = trainable.layout.box_copies(rank, squares.axes);
  const bool one_count = std::all_of(copies.begin(), copies.end(), [&](auto c) { return c == copies[0]; });
  if (one_count) {  // padding has no gradient
    squares.tensors.push_back(trainable.gradient);
    squares.copies.push_back(static_cast<double>(copies[0]));
    return;
  }
  const std::vector<at::Tensor> views = parallel::box_views(trainable.gradient, trainable.layout, rank);
  for (std::size_t b = 0; b < views.size(); ++b) {
    squares.tensors.push_back(views[b]);
    squares.copies.push_back(static_cast<double>(copies[b]));
  }
}

double sum_over(comm::Communicator& communicator, mesh::AxisSet axes, double value) {
  if (communicator.mesh().size(axes) == 1) {
    return value;
  }
  const at::Tensor sum = at::full({1}, value, at::kDouble);
  communicator.group(axes).all_reduce({sum}, comm::Reduction::sum, "squared gradient norm");
  return sum.item<double>();
}

/// A short text of every rank, by rank.
std::vector<std::string> of_all_ranks(const std::string& mine, comm::Communicator& communicator,
                                      const char* label) {
  constexpr std::int64_t most = 256;
  const at::Tensor bytes = at::zeros({1, most}, at::kByte);
  std::copy_n(mine.begin(), std::min<std::size_t>(mine.size(), most), bytes.data_ptr<std::uint8_t>());
  at::Tensor all = at::empty({communicator.world(), most}, at::kByte);
  communicator.everyone().all_gather({all}, {bytes}, label);
  std::vector<std::string> texts;
  for (std::int64_t rank = 0; rank < communicator.world(); ++rank) {
    const std::uint8_t* begin = all.const_data_ptr<std::uint8_t>() + rank * most;
    texts.emplace_back(begin, std::find(begin, begin + most, 0));
  }
  return texts;
}

}  // namespace

double global_gradient_norm(const std::vector<parallel::Trainable>& trainables,
                            comm::Communicator& communicator) {
  const at::NoGradGuard no_grad;
  std::map<std::string, Squares> by_axes;
  for (const parallel::Trainable& trainable : trainables) {
    const mesh::AxisSet cut = trainable.layout.cut_axes();
    Squares& squares = by_axes[cut.name()];
    squares.axes = cut;
    if (trainable.counted && trainable.gradient.numel() > 0) {
      add(squares, trainable, communicator.rank());
    }
  }
  double total = 0;
  for (const auto& [name, squares] : by_axes) {
    total += sum_over(communicator, squares.axes, squares.sum());
  }
  return std::sqrt(sum_over(communicator, {mesh::Axis::pp}, total));  // stages have other parameters
}

double clip_factor(double norm, double most) {
  return most > 0 ? std::min(1.0, most / (norm + 1e-6)) : 1.0;
}

std::string describe_bad_gradient(const std::vector<parallel::Trainable>& trainables,
                                  comm::Communicator& communicator) {
  const at::NoGradGuard no_grad;
  const auto is_bad = [](const parallel::Trainable& t) {
    return !at::isfinite(t.gradient).all().item<bool>();
  };
  const auto bad = std::find_if(trainables.begin(), trainables.end(), is_bad);
  const std::vector<std::string> names =
      of_all_ranks(bad == trainables.end() ? "" : bad->name, communicator, "which gradient is not finite");

  const mesh::Mesh& mesh = communicator.mesh();
  std::string text;
  for (std::int64_t rank = 0; rank < communicator.world(); ++rank) {
    const std::string& name = names[static_cast<std::size_t>(rank)];
    if (!name.empty()) {
      const std::string where =
          mesh.size(mesh::Axis::pp) > 1 ? fmt::format(" (pp {})", mesh.coordinate(rank, mesh::Axis::pp)) : "";
      text += fmt::format("{}rank {}{}: {}", text.empty() ? "" : ", ", rank, where, name);
    }
  }
  return text.empty() ? "no rank's own part (the sum of squares overflows)" : text;
}

}  // namespace ndmesh::train
