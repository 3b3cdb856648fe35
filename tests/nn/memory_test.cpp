// What operators keep for the backward pass, and for what their memory is booked: counted by an allocator
// that this program installs.
#include <c10/core/CPUAllocator.h>

#include <array>
#include <cstdlib>
#include <mutex>

#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/functional.h"
#include "nn/support.h"

namespace ndmesh::nn {
namespace {

using namespace test;

std::mutex counting;  // threads inside operators allocate too
MemoryBytes live;
MemoryBytes peak;

/// Bytes asked for, by the category of the moment. 64 bytes before each block say what is given back.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    auto* block = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64));
    auto* header = reinterpret_cast<std::int64_t*>(block);
    header[0] = static_cast<std::int64_t>(bytes);
    header[1] = static_cast<std::int64_t>(current_memory_category());
    const std::lock_guard lock(counting);
    live.by_category[static_cast<std::size_t>(header[1])] += header[0];
    peak[current_memory_category()] =
        std::max(peak[current_memory_category()], live[current_memory_category()]);
    return {block + 64, block + 64, &give_back, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void give_back(void* data) {
    if (data == nullptr) {
      return;
    }
    auto* block = static_cast<std::byte*>(data) - 64;
    const auto* header = reinterpret_cast<const std::int64_t*>(block);
    {
      const std::lock_guard lock(counting);
      live.by_category[static_cast<std::size_t>(header[1])] -= header[0];
    }
    std::free(block);
  }
};

class Memory : public testing::Test {
 protected:
  void SetUp() override {
    static CountingAllocator allocator;
    c10::SetCPUAllocator(&allocator, 1);
  }

  /// Bytes that live after `forward` beyond those before, with its outputs held.
  std::int64_t kept(const std::function<Tensors()>& forward) {
    const std::int64_t before = live.total();
    const Tensors out = forward();
    return live.total() - before;
  }
};

constexpr std::int64_t number = 4;  // bytes of a float32

TEST_F(Memory, OperatorsKeepTheirOutputsAndTheFewNumbersTheySay) {
  const at::Tensor x = leaf(random({2, 8, 32}, at::kFloat));
  const at::Tensor y = leaf(random({2, 8, 32}, at::kFloat, 2));
  const at::Tensor norm = leaf(random({32}, at::kFloat));
  const at::Tensor weight = leaf(random({48, 32}, at::kFloat));
  const at::Tensor ids = at::zeros({2, 8}, at::kLong);
  const std::int64_t tokens = 16;
  EXPECT_EQ(kept([&] { return Tensors{nn::linear(x, weight, {})}; }), tokens * 48 * number);
  EXPECT_EQ(kept([&] { return Tensors{rms_norm(x, norm, 1e-5)}; }), (tokens * 32 + tokens) * number);
  EXPECT_EQ(kept([&] {
              const auto [sum, normed] = add_rms_norm(x, y, norm, 1e-5);
              return Tensors{sum, normed};
            }),
            (2 * tokens * 32 + tokens) * number);
  EXPECT_EQ(kept([&] { return Tensors{swiglu(x, y)}; }), tokens * 32 * number);
  EXPECT_EQ(kept([&] { return Tensors{embed(weight, ids)}; }), tokens * 32 * number);
  const at::Tensor cos = at::ones({8, 4}, at::kFloat);
  EXPECT_EQ(kept([&] { return Tensors{rotate(x.view({2, 8, 4, 8}), cos, cos)}; }), tokens * 32 * number);
  const at::Tensor q = x.view({2, 8, 4, 8});
  EXPECT_EQ(kept([&] { return Tensors{attention(q, q, q)}; }), (tokens * 32 + tokens * 4) * number);
}

TEST_F(Memory, OperatorsOfOtherFamiliesToo) {
  const at::Tensor x = leaf(random({2, 8, 32}, at::kFloat));
  const at::Tensor weight = leaf(random({32}, at::kFloat));
  const std::int64_t tokens = 16;
  EXPECT_EQ(kept([&] {
              return Tensors{nn::norm(x, {weight, weight, 1e-5, NormKind::layer})};
            }),
            (tokens * 32 + 2 * tokens) * number);
  EXPECT_EQ(kept([&] { return Tensors{gated_halves(Activation::gelu_tanh, x)}; }), tokens * 16 * number);
  EXPECT_EQ(kept([&] {
              const auto [q, k, v] = split_qkv(scaled(x, 2), 16);
              return Tensors{q, k, v};
            }),
            tokens * 32 * number);
  const at::Tensor q = x.view({2, 8, 4, 8});
  EXPECT_EQ(kept([&] { return Tensors{attention(q, q, q, {.softcap = 2.0})}; }),
            (tokens * 32 + tokens * 4) * number);
}

TEST_F(Memory, LogitsExistAChunkAtATime) {
  const at::Tensor x = leaf(random({2, 8, 32}, at::kFloat));
  const at::Tensor weight = leaf(random({500, 32}, at::kFloat));
  const at::Tensor targets = at::zeros({2, 8}, at::kLong);
  const MemoryScope scope(MemoryCategory::activations);
  const MemoryBytes before = live;
  peak = MemoryBytes{};
  const at::Tensor loss = head_loss(x, weight, targets, {1.0, 3});
  EXPECT_EQ(peak[MemoryCategory::logits], 3 * 500 * number);
  EXPECT_EQ(live[MemoryCategory::logits], 0);
  head_loss(x, weight, targets, {1.0, 3, 30.0});
  EXPECT_EQ(peak[MemoryCategory::logits], 2 * 3 * 500 * number);
  EXPECT_EQ(live[MemoryCategory::buffers] - before[MemoryCategory::buffers], 500 * 32 * number);
  EXPECT_LE(live[MemoryCategory::activations] - before[MemoryCategory::activations], 16 * 32 * number + 64);
}

TEST_F(Memory, WithoutGradientsTheLossKeepsNothing) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = random({2, 8, 32}, at::kFloat);
  const at::Tensor weight = random({500, 32}, at::kFloat);
  EXPECT_LE(kept([&] { return Tensors{head_loss(x, weight, at::zeros({2, 8}, at::kLong), {1.0, 3})}; }), 64);
}

TEST_F(Memory, WeightGradientsAreBookedAsBuffers) {
  const at::Tensor x = leaf(random({2, 8, 32}, at::kFloat));
  const at::Tensor weight = leaf(random({48, 32}, at::kFloat));
  const at::Tensor table = leaf(random({20, 32}, at::kFloat));
  const at::Tensor norm = leaf(random({32}, at::kFloat));
  const std::int64_t before = live[MemoryCategory::buffers];
  const MemoryScope scope(MemoryCategory::activations);
  nn::linear(rms_norm(x + embed(table, at::zeros({2, 8}, at::kLong)), norm, 1e-5), weight, {})
      .sum()
      .backward();
  EXPECT_EQ(live[MemoryCategory::buffers] - before, (48 * 32 + 20 * 32 + 32) * number);
}

TEST_F(Memory, BetweenForwardAndBackwardTheHeadGradientIsInItsOwnDtype) {
  const at::Tensor x = leaf(random({1, 8, 32}, at::kBFloat16));
  const at::Tensor weight = leaf(random({500, 32}, at::kBFloat16));
  const at::Tensor targets = at::zeros({1, 8}, at::kLong);
  for (const std::int64_t chunk : {8, 4}) {  // several chunks are added in float32
    const std::int64_t before = live[MemoryCategory::buffers];
    const at::Tensor loss = head_loss(x, weight, targets, {1.0, chunk});
    EXPECT_EQ(live[MemoryCategory::buffers] - before, 500 * 32 * 2) << chunk;
  }
}

}  // namespace
}  // namespace ndmesh::nn
