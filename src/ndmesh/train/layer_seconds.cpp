#include "ndmesh/train/layer_seconds.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "ndmesh/base/clock.h"
#include "ndmesh/layout/model_part.h"
#include "ndmesh/model/config.h"
#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/decoder.h"
#include "ndmesh/nn/parameter.h"
#include "ndmesh/plan/stage_cut.h"
#include "ndmesh/train/scalar_type.h"
#include "ndmesh/train/thread_count.h"

namespace ndmesh::train {
namespace {

struct Pass {
  double forward = 0;
  double backward = 0;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// A layer, or one end of the model, alone.
class Piece {
 public:
  Piece(const model::ModelSpec& model, const layout::ModelPart& part, const job::Job& job)
      : decoder_(model, part, scalar_type(job.dtype)) {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : decoder_.parameters()) {
      nn::take_memory(parameter);
      parameter.fill_(0.02);  // products take as long as with any other values
    }
    const std::int64_t batch = job.batch.micro;
    const std::int64_t length = job.batch.seq_len;
    tokens_BS_ = at::arange(batch * length).remainder(model.vocab).view({batch, length});
    states_BSH_ = at::linspace(-1, 1, batch * length * model.hidden)
                      .view({batch, length, model.hidden})
                      .to(decoder_.dtype());
    request_ = {tokens_BS_, 1.0 / static_cast<double>(batch * length), job.train.loss_chunk};
  }

  /// The median of some passes, after one that is not counted.
  Pass measured() {
    constexpr std::size_t fewest = 3;
    constexpr std::size_t most = 9;
    constexpr double long_enough = 0.3;  // seconds
    pass();
    std::vector<double> forward, backward;
    for (double spent = 0; forward.size() < fewest || (forward.size() < most && spent < long_enough);) {
      const Pass one = pass();
      forward.push_back(one.forward);
      backward.push_back(one.backward);
      spent += one.forward + one.backward;
    }
    return {median(std::move(forward)), median(std::move(backward))};
  }

 private:
  Pass pass() {
    at::Tensor input_gradient;
    const double begin = now_seconds();
    const at::Tensor input =
        decoder_.part().embeds ? tokens_BS_ : nn::begin_graph(states_BSH_, input_gradient);
    at::Tensor output = decoder_.forward(input, request_);
    const double turn = now_seconds();
    const torch::autograd::Edge from = torch::autograd::impl::gradient_edge(output);
    at::Tensor gradient = at::ones_like(output);
    output.reset();
    nn::backward_from(from, std::move(gradient));
    return {turn - begin, now_seconds() - turn};
  }

  nn::Decoder decoder_;
  at::Tensor tokens_BS_;
  at::Tensor states_BSH_;
  nn::Decoder::LossRequest request_;
};

/// What decides about a layer's time.
using LayerKind = std::pair<double, double>;

LayerKind kind_of(const model::ModelSpec& model, std::int64_t layer, std::int64_t seq_len) {
  const model::FlopsPerToken flops = model::layer_flops_per_token(model, layer, seq_len);
  return {flops.weights, flops.attention};
}

LayerSeconds measure_here(const job::Job& job, const model::ModelSpec& model) {
  set_thread_count(static_cast<int>(job::threads_per_rank(job)));
  layout::ModelPart part =
      layout::tensor_part(model, mesh::Mesh(job.mesh, job.mesh_order), 0, /*sequence_parallel=*/false);
  const auto of_part = [&](const layout::Range& layers, bool embeds, bool has_head) {
    part.layers = layers;
    part.embeds = embeds;
    part.has_head = has_head;
    return Piece(model, part, job).measured();
  };

  LayerSeconds seconds;
  const bool twice = job.recompute.policy == job::Recompute::Policy::full;
  std::map<LayerKind, double> known;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const LayerKind kind = kind_of(model, layer, job.batch.seq_len);
    if (known.find(kind) == known.end()) {
      const Pass pass = of_part({layer, 1}, false, false);
      known[kind] = (twice ? 2 : 1) * pass.forward + pass.backward;
    }
    seconds.layers.push_back(known[kind]);
  }
  const Pass embedding = of_part({0, 0}, true, false);
  seconds.embedding = embedding.forward + embedding.backward;
  const Pass head = of_part({model.layers, 0}, false, true);
  seconds.head = head.forward + head.backward;
  return seconds;
}

}  // namespace

std::vector<std::int64_t> LayerSeconds::cut(std::int64_t stages) const {
  std::vector<double> costs = layers;
  costs.front() += embedding;
  std::vector<std::int64_t> sizes;
  for (const layout::Range& stage : plan::cheapest_cut(costs, head, stages)) {
    sizes.push_back(stage.size);
  }
  return sizes;
}

LayerSeconds measure_layers(const job::Job& job, const model::ModelSpec& model) {
  LayerSeconds seconds;
  std::exception_ptr failure;
  std::thread([&] {
    try {
      seconds = measure_here(job, model);
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) {
    std::rethrow_exception(failure);
  }
  return seconds;
}

}  // namespace ndmesh::train
