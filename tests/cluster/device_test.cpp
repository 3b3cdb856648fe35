#include <gmock/gmock.h>

#include <set>

#include "ndmesh/base/error.h"
#include "ndmesh/cluster/device.h"

namespace ndmesh::cluster {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& name) {
  try {
    device(name);
  } catch (const RequestError& error) {
    return error.what();
  }
  return "";
}

TEST(Device, PeakFlopsFollowTheNumberFormat) {
  Device device;
  device.bf16_flops = 989e12;
  device.fp32_flops = 67e12;
  EXPECT_EQ(device.peak_flops(DType::bfloat16), 989e12);
  EXPECT_EQ(device.peak_flops(DType::float16), 989e12);
  EXPECT_EQ(device.peak_flops(DType::float32), 67e12);
  EXPECT_EQ(device.peak_flops(DType::float64), 0);
}

// What nvidia-smi lists, not the label: 81559 MiB are 79.65 GiB and 85.52 GB.
TEST(Catalogue, MemoryIsWhatTheDriverReports) {
  EXPECT_EQ(device("H100-SXM").memory_bytes, 85'520'809'984);
  EXPECT_EQ(device("A100-SXM").memory_bytes, 85'899'345'920);
  EXPECT_EQ(device("H200-SXM").memory_bytes, std::int64_t{143771} << 20);
  EXPECT_EQ(device("B300-SXM").memory_bytes, std::int64_t{275040} << 20);
  EXPECT_EQ(device("A10").memory_bytes, std::int64_t{23028} << 20);
}

TEST(Catalogue, FiguresAreDenseAndInOneDirection) {
  const Device h100 = device("H100-SXM");
  EXPECT_EQ(h100.bf16_flops, 989e12);
  EXPECT_EQ(h100.fp8_flops, 1979e12);
  EXPECT_EQ(h100.memory_bandwidth, 3350e9);
  EXPECT_EQ(h100.scale_up.bandwidth, 450e9);
  EXPECT_EQ(h100.scale_up.devices, 8);
  EXPECT_EQ(h100.nic_bandwidth, 50e9);
  EXPECT_EQ(h100.host_bandwidth, 63e9);
  EXPECT_EQ(h100.matmul_efficiency, 0.78);
  EXPECT_EQ(device("GB200").host_bandwidth, 450e9);
  EXPECT_EQ(device("GB200").scale_up.devices, 72);
}

TEST(Catalogue, NamesOfMeasurementsAndOfShopsResolve) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"A100-80GB-SXM", "A100-SXM"},
      {"A100-80GB", "A100-SXM"},
      {"A100-40GB", "A100-SXM-40GB"},
      {"H100-80GB-SXM", "H100-SXM"},
      {"H100-96GB-HBM2e-500W", "H100-SXM-96GB"},
      {"H200-141GB-SXM", "H200-SXM"},
      {"H800-80GB-SXM", "H800-SXM"},
      {"A800-80GB", "A800-SXM"},
      {"B200-180GB", "B200-SXM"},
      {"GB200-192GB", "GB200"},
      {"GB300", "GB300"},
      {"B300", "B300-SXM"},
      {"MI325X-256GB", "MI325X"},
      {"RTX-PRO-6000-96GB", "RTX-PRO-6000"},
      {"RTX-PRO-6000-Blackwell-SE", "RTX-PRO-6000"},
      {"RTX-4090-24GB", "RTX-4090"},
      {"RTX-5060Ti-16GB", "RTX-5060-Ti"},
      {"RTX-A6000-48GB", "RTX-A6000"},
      {"V100-32GB-SXM2", "V100-SXM"},
      {"L40S-48GB", "L40S"},
      {"h100_sxm", "H100-SXM"}};
  for (const auto& [name, expected] : names) EXPECT_EQ(device(name).name, expected) << name;
}

TEST(Catalogue, VariantsWithCutLinksAreTheirOwnDevices) {
  EXPECT_EQ(device("H800").scale_up.bandwidth, 200e9);
  EXPECT_EQ(device("H800").bf16_flops, device("H100").bf16_flops);
  EXPECT_EQ(device("A800").scale_up.bandwidth, 200e9);
}

TEST(Catalogue, EveryDeviceHasItsFiguresInBoundsAndWithASource) {
  std::set<std::string> names;
  for (const std::string& name : device_names()) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(names.insert(name).second);
    const Device each = device(name);
    EXPECT_EQ(each.name, name);
    EXPECT_FALSE(each.architecture.empty());
    EXPECT_TRUE(each.bf16_flops > 40e12 && each.bf16_flops < 3000e12);
    EXPECT_TRUE(each.memory_bytes > 15e9 && each.memory_bytes < 320e9);
    EXPECT_TRUE(each.memory_bandwidth > 250e9 && each.memory_bandwidth <= 8000e9);
    EXPECT_TRUE(each.host_bandwidth >= each.pcie_bandwidth && each.pcie_bandwidth > 10e9);
    EXPECT_GE(each.scale_up.bandwidth, each.scale_up.pair_bandwidth);
    // A reduction in the switch (NVLS) sends less than a ring, so its bus bandwidth may pass the line rate a little.
    if (each.scale_up.devices > 1) {
      EXPECT_GE(1.1 * each.scale_up.bandwidth, each.bus_bandwidth);
    }
    EXPECT_LT(each.matmul_efficiency, 1);
    for (const Figure& figure : device_figures(name)) {
      EXPECT_EQ(figure.source.empty(), figure.name == "aliases" || figure.name == "note") << figure.name;
    }
  }
  EXPECT_GE(names.size(), 30U);
}

TEST(Catalogue, UnknownDevicesAreRefusedWithTheNearest) {
  EXPECT_THAT(refusal("H100-SMX"),
              HasSubstr("\"H100-SMX\" is no device of the catalogue; did you mean H100-SXM?"));
  EXPECT_THAT(refusal(""), HasSubstr("devices: H100-SXM, "));
  EXPECT_THAT(refusal(std::string(5000, 'x')), HasSubstr("is no device"));
}

}  // namespace
}  // namespace ndmesh::cluster
