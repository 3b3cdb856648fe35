#include "ndmesh/nn/withheld_gradients.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <unordered_map>
#include <utility>

namespace ndmesh::nn {
namespace {

thread_local WithheldGradients* owed_now = nullptr;

/// Gradients on their way to one node.
struct Parcel {
  std::size_t to_come = 0;
  torch::autograd::edge_list edges;
  torch::autograd::variable_list gradients;

  void send() {
    torch::autograd::Engine::get_default_engine().execute(edges, gradients, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
  }
};

}  // namespace

WithheldGradients::WithheldGradients() = default;
WithheldGradients::WithheldGradients(WithheldGradients&&) noexcept = default;
WithheldGradients& WithheldGradients::operator=(WithheldGradients&&) noexcept = default;
WithheldGradients::~WithheldGradients() = default;

WithheldGradients::Scope::Scope(WithheldGradients& owed) : before_(std::exchange(owed_now, &owed)) {}
WithheldGradients::Scope::~Scope() {
  owed_now = before_;
}

WithheldGradients* WithheldGradients::current() {
  return owed_now;
}

void WithheldGradients::add(Debt debt) {
  debts_.push_back(std::move(debt));
}

void WithheldGradients::deliver() {
  std::unordered_map<const torch::autograd::Node*, Parcel> parcels;
  for (const Debt& debt : debts_) {
    for (const torch::autograd::Edge& edge : debt.edges) {
      ++parcels[edge.function.get()].to_come;
    }
  }
  for (Debt& owed : debts_) {
    const Debt debt = std::exchange(owed, {});  // what it holds goes when it is paid
    const std::vector<at::Tensor> computed = debt.compute ? debt.compute() : std::vector<at::Tensor>();
    for (std::size_t i = 0; i < debt.edges.size(); ++i) {
      Parcel& parcel = parcels.at(debt.edges[i].function.get());
      parcel.edges.push_back(debt.edges[i]);
      parcel.gradients.push_back(debt.finished[i].defined() ? debt.finished[i] : computed[i]);
      if (--parcel.to_come == 0) {
        std::exchange(parcel, {}).send();
      }
    }
  }
  debts_.clear();
}

}  // namespace ndmesh::nn
