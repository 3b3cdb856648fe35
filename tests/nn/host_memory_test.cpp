#include "ndmesh/nn/host_memory.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <thread>

namespace ndmesh::nn {
namespace {

TEST(HostMemory, CopiesConvertAndCountTheFewerBytes) {
  take_host_traffic();
  const at::Tensor device = at::arange(10, at::kFloat);
  const at::Tensor host = empty_on_host({10}, at::kFloat);
  copy_to_host(host, device);
  EXPECT_TRUE(at::equal(host, device));
  const at::Tensor narrow = at::empty({10}, at::kBFloat16);
  copy_to_device(narrow, host);
  EXPECT_TRUE(at::equal(narrow, device.to(at::kBFloat16)));
  const HostTraffic traffic = take_host_traffic();
  EXPECT_EQ(traffic.to_host, 40);
  EXPECT_EQ(traffic.to_device, 20);
  EXPECT_EQ(take_host_traffic().to_host, 0);
}

TEST(HostMemory, SumsAreMadeOnTheHostByPieces) {
  const at::Tensor device = at::arange((std::int64_t{1} << 21) + 3, at::kFloat);
  const at::Tensor host = brought_to_host(device);
  take_host_traffic();
  add_to_host(host, device);
  EXPECT_TRUE(at::equal(host, device * 2));
  EXPECT_EQ(take_host_traffic().to_host, 4 * device.numel());
  EXPECT_TRUE(at::equal(brought_to_device(host), host));
  EXPECT_EQ(take_host_traffic().to_device, 4 * host.numel());
}

TEST(HostMemory, TrafficIsThatOfTheThread) {
  take_host_traffic();
  std::thread([] { copy_to_host(empty_on_host({4}, at::kFloat), at::ones({4}, at::kFloat)); }).join();
  EXPECT_EQ(take_host_traffic().to_host, 0);
}

}  // namespace
}  // namespace ndmesh::nn
