#include "ndmesh/nn/withheld_gradients.h"

#include <ATen/record_function.h>

#include "ndmesh/layout/model_part.h"
#include "ndmesh/model/config.h"
#include "ndmesh/nn/decoder.h"
#include "ndmesh/nn/functional.h"
#include "nn/support.h"

/// Backward in two parts: the gradient of the input first, those of the parameters later, and no product twice.
namespace ndmesh::nn {
namespace {

using test::distance;
using test::leaf;
using test::random;

/// Matrix products of this thread while it lives; float64 products all go through libtorch.
class CountProducts {
 public:
  CountProducts()
      : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(
            [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
              const std::string_view name = function.name();
              count_ += name == "aten::mm" || name == "aten::addmm" || name == "aten::addmm_" ? 1 : 0;
              return nullptr;
            }))) {
    count_ = 0;
  }
  ~CountProducts() { at::removeCallback(handle_); }
  CountProducts(const CountProducts&) = delete;
  CountProducts& operator=(const CountProducts&) = delete;
  static std::int64_t count() { return count_; }

 private:
  static inline thread_local std::int64_t count_ = 0;
  at::CallbackHandle handle_;
};

struct Linears {
  at::Tensor x = random({3, 5}, at::kDouble, 1);
  at::Tensor first = leaf(random({4, 5}, at::kDouble, 2));
  at::Tensor bias = leaf(random({4}, at::kDouble, 3));
  at::Tensor second = leaf(random({2, 4}, at::kDouble, 4));

  at::Tensor out(const at::Tensor& input) const {
    return linear(linear(input, first, bias), second, at::Tensor());
  }
};

TEST(WithheldGradients, InputGradientComesFirstAndTheRestIsTheSame) {
  const Linears whole, split;
  const at::Tensor x = leaf(whole.x);
  whole.out(x).sum().backward();

  at::Tensor dx;
  WithheldGradients owed;
  const at::Tensor out = split.out(begin_graph(split.x, dx)).sum();
  {
    const WithheldGradients::Scope scope(owed);
    out.backward();
  }
  EXPECT_TRUE(at::equal(dx, x.grad()));
  for (const at::Tensor& parameter : {split.first, split.bias, split.second}) {
    EXPECT_FALSE(parameter.grad().defined());
  }
  owed.deliver();
  EXPECT_TRUE(at::equal(split.first.grad(), whole.first.grad()));
  EXPECT_TRUE(at::equal(split.bias.grad(), whole.bias.grad()));
  EXPECT_TRUE(at::equal(split.second.grad(), whole.second.grad()));
  owed.deliver();  // nothing is left
  EXPECT_TRUE(at::equal(split.second.grad(), whole.second.grad()));
}

TEST(WithheldGradients, ScopesEndAndNest) {
  WithheldGradients outer, inner;
  EXPECT_EQ(WithheldGradients::current(), nullptr);
  {
    const WithheldGradients::Scope first(outer);
    {
      const WithheldGradients::Scope second(inner);
      EXPECT_EQ(WithheldGradients::current(), &inner);
    }
    EXPECT_EQ(WithheldGradients::current(), &outer);
  }
  EXPECT_EQ(WithheldGradients::current(), nullptr);
}

/// A parameter that is used twice gets the sum of both.
TEST(WithheldGradients, UsesOfOneParameterAreSummed) {
  const auto gradient = [](bool withheld) {
    const at::Tensor weight = leaf(random({4, 4}, at::kDouble, 5));
    at::Tensor dx;
    const at::Tensor x = begin_graph(random({3, 4}, at::kDouble, 6), dx);
    const at::Tensor out = linear(linear(x, weight, at::Tensor()), weight, at::Tensor()).sum();
    WithheldGradients owed;
    if (withheld) {
      const WithheldGradients::Scope scope(owed);
      out.backward();
    } else {
      out.backward();
    }
    owed.deliver();
    return weight.grad();
  };
  EXPECT_LT(distance(gradient(true), gradient(false)), 1e-15);
}

/// A middle stage, with projections of every kind: each of its products has two in backward, whole or split.
TEST(WithheldGradients, NoProductOfADecoderIsDoneTwice) {
  const model::ModelSpec spec = model::spec_from_config(
      R"({"model_type": "qwen2", "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1,
          "intermediate_size": 24, "vocab_size": 32, "max_position_embeddings": 64})",
      "config.json");
  layout::ModelPart part = layout::whole_part(spec);
  part.layers = {1, 2};
  part.embeds = part.has_head = false;
  Decoder decoder(spec, part, at::kDouble);
  for (at::Tensor& parameter : decoder.parameters()) {
    take_memory(parameter);
    const at::NoGradGuard no_grad;
    parameter.copy_(random(parameter.sizes(), at::kDouble, 7));
  }
  std::int64_t forward = 0, input = 0, weight = 0;
  at::Tensor dx;
  WithheldGradients owed;
  const at::Tensor x = begin_graph(random({2, 8, 16}, at::kDouble, 8), dx);
  at::Tensor out;
  {
    const CountProducts products;
    out = decoder.forward(x, {});
    forward = CountProducts::count();
  }
  {
    const CountProducts products;
    const WithheldGradients::Scope scope(owed);
    out.backward(at::ones_like(out));
    input = CountProducts::count();
  }
  {
    const CountProducts products;
    owed.deliver();
    weight = CountProducts::count();
  }
  EXPECT_EQ(forward, 2 * 7);  // q, k, v, o, gate, up, down
  EXPECT_EQ(input, forward);
  EXPECT_EQ(weight, forward);
}

}  // namespace
}  // namespace ndmesh::nn
