// Forward and backward of each operator beside the plain libtorch operators under ordinary autograd, one
// thread. Counter: seconds per element of the operator's input (shown in n = 1e-9); for the loss, per logit; for
// linear, per multiplication.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "ndmesh/nn/functional.h"

namespace {

using namespace ndmesh;
using nn::ignored;
using Forward = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

/// Times forward and backward of `forward` over `inputs` of 1024 tokens.
void run(benchmark::State& state, at::ScalarType dtype, const std::vector<std::vector<std::int64_t>>& shapes,
         std::int64_t elements, const Forward& forward) {
  at::set_num_threads(1);
  std::vector<at::Tensor> inputs;
  for (const std::vector<std::int64_t>& shape : shapes) {
    inputs.push_back(at::randn(shape).to(dtype).set_requires_grad(true));
  }
  const at::Tensor grad = at::ones_like(forward(inputs));
  for ([[maybe_unused]] auto _ : state) {
    const auto grads = torch::autograd::grad({forward(inputs)}, inputs, {grad});
    benchmark::DoNotOptimize(grads.front().const_data_ptr());
  }
  state.counters["per_element"] =
      benchmark::Counter(static_cast<double>(elements),
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

at::Tensor torch_rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto halves = x.chunk(2, -1);
  return x * cos + at::cat({-halves[1], halves[0]}, -1) * sin;
}

void add(const std::string& name, const std::vector<std::vector<std::int64_t>>& shapes, std::int64_t elements,
         const Forward& own, const Forward& torch_own) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const auto& [who, forward] : {std::pair{"ndmesh", own}, std::pair{"libtorch", torch_own}}) {
      benchmark::RegisterBenchmark(
          (name + "/" + c10::toString(dtype) + "/" + who).c_str(),
          [=](benchmark::State& state) { run(state, dtype, shapes, elements, forward); });
    }
  }
}

void add_attention(const std::string& name, std::int64_t sequence, std::int64_t kv_heads) {
  using Inputs = std::vector<at::Tensor>;
  const std::vector<std::int64_t> queries = {2, sequence, 8, 64};
  const std::vector<std::int64_t> keys = {2, sequence, kv_heads, 64};
  add(
      name, {queries, keys, keys}, 2 * sequence * 8 * 64,
      [](const Inputs& t) { return nn::attention(t[0], t[1], t[2]); },
      [](const Inputs& t) {
        return at::scaled_dot_product_attention(t[0].transpose(1, 2), t[1].transpose(1, 2),
                                                t[2].transpose(1, 2), {}, 0.0, true, {}, true)
            .transpose(1, 2);
      });
}

void add_linear(std::int64_t tokens, std::int64_t in, std::int64_t out) {
  using Inputs = std::vector<at::Tensor>;
  add(
      "linear (" + std::to_string(in) + " to " + std::to_string(out) + ")", {{1, tokens, in}, {out, in}},
      3 * tokens * in * out, [](const Inputs& t) { return nn::linear(t[0], t[1], {}); },
      [](const Inputs& t) { return at::linear(t[0], t[1]); });
}

void add_all() {
  const std::int64_t tokens = 1024;
  const std::int64_t hidden = 512;
  const std::int64_t elements = tokens * hidden;
  using Inputs = std::vector<at::Tensor>;
  add(
      "rms_norm", {{1, tokens, hidden}, {hidden}}, elements,
      [](const Inputs& t) { return nn::rms_norm(t[0], t[1], 1e-5); },
      [hidden](const Inputs& t) { return at::rms_norm(t[0], {hidden}, t[1], 1e-5); });
  add(
      "add_rms_norm", {{1, tokens, hidden}, {1, tokens, hidden}, {hidden}}, elements,
      [](const Inputs& t) {
        const auto [sum, normed] = nn::add_rms_norm(t[0], t[1], t[2], 1e-5);
        return sum + normed;
      },
      [hidden](const Inputs& t) {
        const at::Tensor sum = t[0] + t[1];
        return sum + at::rms_norm(sum, {hidden}, t[2], 1e-5);
      });
  add(
      "swiglu", {{1, tokens, hidden}, {1, tokens, hidden}}, elements,
      [](const Inputs& t) { return nn::swiglu(t[0], t[1]); },
      [](const Inputs& t) { return at::silu(t[0]) * t[1]; });
  const at::Tensor angles = at::rand({tokens, 32});
  add(
      "rotate", {{1, tokens, 8, 64}}, elements,
      [angles](const Inputs& t) {
        const at::Tensor wide = t[0].scalar_type() == at::kDouble ? angles.to(at::kDouble) : angles;
        return nn::rotate(t[0], wide.cos(), wide.sin());
      },
      [angles](const Inputs& t) {
        const at::Tensor both = at::cat({angles, angles}, -1).unsqueeze(1).to(t[0].scalar_type());
        return torch_rotate(t[0], both.cos(), both.sin());
      });
  add_linear(tokens, 512, 2048);
  add_linear(tokens, 2048, 512);
  add_linear(tokens, 1024, 1024);
  add_attention("attention (2 x 512, 8 heads of 64)", 512, 8);
  add_attention("attention (2 x 512, 8 heads of 64, 2 for keys)", 512, 2);
  add_attention("attention (2 x 2048, 8 heads of 64)", 2048, 8);
  const at::Tensor ids = at::randint(32000, {1, tokens}, at::kLong);
  add(
      "embed (vocabulary 32000)", {{32000, hidden}}, elements,
      [ids](const Inputs& t) { return nn::embed(t[0], ids); },
      [ids](const Inputs& t) { return at::embedding(t[0], ids); });
  const std::int64_t vocab = 8192;
  const at::Tensor targets = at::randint(vocab, {1, tokens}, at::kLong);
  add(
      "head_loss (vocabulary 8192, hidden 64)", {{1, tokens, 64}, {vocab, 64}}, tokens * vocab,
      [targets](const Inputs& t) {
        return nn::head_loss(t[0], t[1], targets, {1.0, 256});
      },
      [targets](const Inputs& t) {
        const at::Tensor logits = at::linear(t[0], t[1]).flatten(0, 1);
        return at::cross_entropy_loss(
            logits.to(logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat), targets.flatten(), {},
            at::Reduction::Sum, ignored);
      });
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  add_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
