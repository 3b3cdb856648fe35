#include "ndmesh/measure/memory_ledger.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <thread>

namespace ndmesh::measure {
namespace {

class MemoryLedgerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_counting_allocator(); }

  static at::Tensor bytes(std::int64_t count) { return at::empty({count}, at::kByte); }
};

TEST_F(MemoryLedgerTest, BooksToTheScopeRoundedToSixtyFour) {
  MemoryLedger ledger;
  const LedgerScope paying(ledger);
  const at::Tensor outside = bytes(64);
  at::Tensor inner;
  {
    const MemoryScope gradients(MemoryCategory::gradients);
    inner = bytes(100);
    const MemoryScope optimizer(MemoryCategory::optimizer);
    const at::Tensor gone = bytes(1000);
  }
  EXPECT_EQ(ledger.live()[MemoryCategory::workspace], 64);
  EXPECT_EQ(ledger.live()[MemoryCategory::gradients], 128);
  EXPECT_EQ(ledger.live()[MemoryCategory::optimizer], 0);
  EXPECT_EQ(ledger.peaks()[MemoryCategory::optimizer], 1024);
  EXPECT_EQ(ledger.peak_total(), 64 + 128 + 1024);
  EXPECT_EQ(ledger.at_peak()[MemoryCategory::optimizer], 1024);

  inner.reset();
  EXPECT_EQ(ledger.live().total(), 64);
  ledger.reset_peaks();
  EXPECT_EQ(ledger.peak_total(), 64);
  EXPECT_EQ(ledger.peaks()[MemoryCategory::optimizer], 0);
}

TEST_F(MemoryLedgerTest, HostMemoryIsApart) {
  MemoryLedger ledger;
  const LedgerScope paying(ledger);
  const MemoryScope optimizer(MemoryCategory::optimizer);
  const at::Tensor on_device = bytes(64);
  at::Tensor on_host;
  {
    const HostMemoryScope host;
    on_host = bytes(100);
    const HostMemoryScope nested;
  }
  const at::Tensor after = bytes(256);
  EXPECT_EQ(ledger.live().total(), 64 + 256);
  EXPECT_EQ(ledger.host_live()[MemoryCategory::optimizer], 128);
  on_host.reset();
  EXPECT_EQ(ledger.host_live().total(), 0);
  EXPECT_EQ(ledger.host_peaks()[MemoryCategory::optimizer], 128);
  EXPECT_EQ(ledger.host_peak_total(), 128);
  EXPECT_EQ(ledger.peak_total(), 64 + 256);
  ledger.reset_peaks();
  EXPECT_EQ(ledger.host_peak_total(), 0);
}

TEST_F(MemoryLedgerTest, FreeOnAnotherThreadGoesToWhoPaid) {
  MemoryLedger mine;
  at::Tensor tensor;
  {
    const LedgerScope paying(mine);
    tensor = bytes(640);
  }
  std::thread([&] {
    MemoryLedger other;
    const LedgerScope paying(other);
    tensor.reset();
    EXPECT_EQ(other.live().total(), 0);
  }).join();
  EXPECT_EQ(mine.live().total(), 0);
}

TEST_F(MemoryLedgerTest, BlockMayOutliveItsLedger) {
  at::Tensor tensor;
  {
    MemoryLedger ledger;
    const LedgerScope paying(ledger);
    tensor = at::ones({100}, at::kFloat);
  }
  EXPECT_EQ(tensor.sum().item<float>(), 100.0F);
}

TEST_F(MemoryLedgerTest, KernelsThatAskForRawBlocksWork) {
  MemoryLedger ledger;
  const LedgerScope paying(ledger);
  const auto bf16 = at::TensorOptions().dtype(at::kBFloat16);
  const at::Tensor product = at::mm(at::ones({64, 128}, bf16), at::ones({128, 32}, bf16));
  EXPECT_EQ(product[0][0].item<float>(), 128.0F);
}

TEST_F(MemoryLedgerTest, ThreadsWithoutLedgerPayNothing) {
  MemoryLedger ledger;
  const at::Tensor tensor = bytes(64);
  EXPECT_EQ(ledger.live().total(), 0);
}

}  // namespace
}  // namespace ndmesh::measure
