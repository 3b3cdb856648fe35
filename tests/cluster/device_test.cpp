#include <gtest/gtest.h>

#include "ndmesh/cluster/cluster.h"

namespace ndmesh::cluster {
namespace {

TEST(Device, PeakFlopsFollowTheNumberFormat) {
  Device device;
  device.bf16_flops = 989e12;
  device.fp32_flops = 67e12;
  EXPECT_EQ(device.peak_flops(DType::bfloat16), 989e12);
  EXPECT_EQ(device.peak_flops(DType::float16), 989e12);
  EXPECT_EQ(device.peak_flops(DType::float32), 67e12);
  EXPECT_EQ(device.peak_flops(DType::float64), 0);
}

}  // namespace
}  // namespace ndmesh::cluster
