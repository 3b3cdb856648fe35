#include <gmock/gmock.h>

#include "cluster/support.h"
#include "ndmesh/base/error.h"
#include "ndmesh/cluster/cluster.h"

namespace ndmesh::cluster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> level_names(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const Level& level : cluster.levels) names.push_back(level.name);
  return names;
}

std::vector<std::int64_t> domains(const Cluster& cluster) {
  std::vector<std::int64_t> devices;
  for (const Level& level : cluster.levels) devices.push_back(level.devices);
  return devices;
}

TEST(ShortForm, CountsNodesAndDevices) {
  const Cluster node = parse("8xH100-SXM");
  EXPECT_EQ(node.nodes, 1);
  EXPECT_EQ(node.devices_per_node, 8);
  EXPECT_EQ(node.device.name, "H100-SXM");
  EXPECT_EQ(node.name, "8xH100-SXM");
  EXPECT_EQ(node.usable_bytes, 85'520'809'984);
  const Cluster many = parse("64x8xA100-80GB-SXM");
  EXPECT_EQ(many.nodes, 64);
  EXPECT_EQ(many.devices(), 512);
  EXPECT_EQ(parse("MI300X").devices(), 1);
  EXPECT_EQ(parse("2x8xMI300X").devices(), 16);
}

TEST(ShortForm, MappingOfNodes) {
  const Cluster cluster = parse("{nodes: 64, node: 8xH100-SXM, nics: 8x400G, oversubscription: 2}");
  EXPECT_EQ(cluster.devices(), 512);
  EXPECT_THAT(level_names(cluster), ElementsAre("nvlink", "network"));
  EXPECT_EQ(cluster.levels[1].bandwidth, 25e9);  // 50 GB/s a device, halved
  EXPECT_EQ(cluster.levels[1].pair_bandwidth, 50e9);
  EXPECT_THAT(cluster.notes, IsEmpty());
}

TEST(Levels, OneSwitchedNode) {
  const Cluster cluster = parse("8xH100-SXM");
  EXPECT_THAT(cluster.levels, ElementsAre(Level{"nvlink", 8, 450e9, 450e9, 0.6e-6}));
}

TEST(Levels, OneDeviceHasALevelOfItsOwn) {
  EXPECT_THAT(domains(parse("H100-SXM")), ElementsAre(1));
  EXPECT_THAT(domains(parse("L40S")), ElementsAre(1));
}

TEST(Levels, UsualNicsAreTakenAndNoted) {
  const Cluster cluster = parse("2x8xH100-SXM");
  EXPECT_THAT(cluster.levels[1], (Level{"network", 16, 50e9, 50e9, 2.7e-6}));
  EXPECT_THAT(cluster.notes, ElementsAre(HasSubstr("nics not given: 8 of 50GB/s a node")));
}

TEST(Levels, FewNicsAreShared) {
  const Cluster cluster = parse("{nodes: 2, node: 8xA100-SXM, nics: 1x200G}");
  EXPECT_EQ(cluster.levels[1].bandwidth, 25e9 / 8);
  EXPECT_EQ(cluster.levels[1].pair_bandwidth, 25e9);
  EXPECT_EQ(parse("{nodes: 2, node: 4xH100-SXM, nics: 8x200G}").levels[1].pair_bandwidth, 50e9);
}

TEST(Levels, ANicIsNoFasterThanTheWayToIt) {
  const Cluster cluster = parse("{nodes: 2, node: 4xL4, nics: 4x800G}");
  EXPECT_EQ(cluster.levels.back().bandwidth, 31e9);
  EXPECT_EQ(parse("{nodes: 32, node: 4xGB300, nics: 4x800G}").levels.back().bandwidth, 100e9);
}

TEST(Levels, LinksWithoutASwitchGiveAPairASeventh) {
  const Level link = parse("8xMI300X").levels[0];
  EXPECT_EQ(link.name, "xgmi");
  EXPECT_EQ(link.bandwidth, 448e9);
  EXPECT_EQ(link.pair_bandwidth, 64e9);
}

TEST(Levels, ARackOfTraysIsOneDomain) {
  EXPECT_THAT(domains(parse("18x4xGB200")), ElementsAre(72));
  EXPECT_THAT(domains(parse("2x4xGB200")), ElementsAre(8));
  const Cluster two = parse("36x4xGB200");
  EXPECT_THAT(domains(two), ElementsAre(72, 144));
  EXPECT_THAT(level_names(two), ElementsAre("nvlink", "network"));
  // Nodes are dealt evenly to the fewest racks: four of 16 trays, two of 13 and 12.
  EXPECT_THAT(domains(parse("64x4xGB200")), ElementsAre(64, 256));
  EXPECT_THAT(domains(parse("25x4xGB200")), ElementsAre(52, 100));
  EXPECT_THAT(domains(parse("72xGB200")), ElementsAre(72));
}

TEST(Levels, PairsInAPcieBox) {
  const Cluster plain = parse("8xA100-PCIe");
  EXPECT_THAT(level_names(plain), ElementsAre("pcie"));
  EXPECT_THAT(plain.notes, ElementsAre(HasSubstr("no nvlink bridges between pairs of A100-PCIe")));

  const Cluster bridged = parse("{node: 8xA100-PCIe, scale_up: {devices: 2}}");
  EXPECT_THAT(level_names(bridged), ElementsAre("nvlink", "pcie"));
  EXPECT_THAT(domains(bridged), ElementsAre(2, 8));
  EXPECT_EQ(bridged.levels[0].bandwidth, 300e9);
  EXPECT_EQ(bridged.levels[1].bandwidth, 31e9);
}

TEST(Levels, SwitchesAndSocketsInANode) {
  const Cluster sockets = parse("{node: 8xL40S, numa: {nodes: 2, bandwidth: 60GB/s}}");
  EXPECT_THAT(sockets.levels,
              ElementsAre(Level{"pcie", 4, 31e9, 31e9, 1e-6}, Level{"node", 8, 15e9, 31e9, 1e-6}));
  // Four devices share the one uplink of their switch.
  const Cluster switches = parse("{node: 8xL40S, pcie: {devices: 4}}");
  EXPECT_THAT(switches.levels,
              ElementsAre(Level{"pcie", 4, 31e9, 31e9, 1e-6}, Level{"node", 8, 31e9 / 4, 31e9, 1e-6}));
}

TEST(Levels, SwitchesOfTheNetworkMultiplyTheirFactors) {
  const Cluster cluster = parse(
      "{nodes: 64, node: 8xH100-SXM, nics: 8x400G, switches: [{name: leaf, nodes: 16}, {name: pod, nodes: "
      "32, "
      "oversubscription: 2}, {name: spine, oversubscription: 4}]}");
  EXPECT_THAT(level_names(cluster), ElementsAre("nvlink", "leaf", "pod", "spine"));
  EXPECT_THAT(domains(cluster), ElementsAre(8, 128, 256, 512));
  EXPECT_EQ(cluster.levels[1].bandwidth, 50e9);
  EXPECT_EQ(cluster.levels[2].bandwidth, 25e9);
  EXPECT_EQ(cluster.levels[3].bandwidth, 6.25e9);
  // Fewer nodes than a leaf has: the leaf is all there is.
  EXPECT_THAT(domains(resized(cluster, 64)), ElementsAre(8, 64));
}

// A ring all-reduce of S bytes over 8 ranks of a node at line rate, and its least time over two nodes with 1 and 8
// NICs of 25 GB/s: 2 (n - 1) / n S over the bandwidth.
TEST(Levels, CrossingTheNodeBoundaryIsNotFree) {
  const double bytes = 16060522496;
  const auto all_reduce = [&](double ranks, double bandwidth) {
    return 2 * (ranks - 1) / ranks * bytes / bandwidth;
  };
  EXPECT_NEAR(all_reduce(8, parse("8xH100-SXM").levels[0].bandwidth), 62.5e-3, 0.05e-3);
  const Cluster one_nic = parse("{nodes: 2, node: 8xH100-SXM, nics: 1x200G}");
  const Cluster eight_nics = parse("{nodes: 2, node: 8xH100-SXM, nics: 8x200G}");
  const auto node_bandwidth = [](const Cluster& cluster) {
    return static_cast<double>(span_of(cluster, {{16, 1}}).members[0]) * cluster.levels[1].bandwidth;
  };
  EXPECT_NEAR(all_reduce(2, node_bandwidth(one_nic)), 642.4e-3, 0.1e-3);
  EXPECT_NEAR(all_reduce(2, node_bandwidth(eight_nics)), 80.3e-3, 0.05e-3);
}

TEST(Resized, ByNodesAndBelowANode) {
  const Cluster cluster = parse("{nodes: 4, node: 8xH100-SXM, nics: 4x400G, oversubscription: 2}");
  const Cluster more = resized(cluster, 1024);
  EXPECT_EQ(more.nodes, 128);
  EXPECT_EQ(more.levels[1], (Level{"network", 1024, 12.5e9, 50e9, 2.7e-6}));
  EXPECT_THAT(domains(resized(cluster, 8)), ElementsAre(8));
  const Cluster few = resized(cluster, 3);
  EXPECT_EQ(few.devices_per_node, 3);
  EXPECT_THAT(domains(few), ElementsAre(3));
  EXPECT_THAT(domains(resized(parse("{node: 8xA100-PCIe, scale_up: {devices: 2}}"), 3)), ElementsAre(2, 3));
  EXPECT_THAT(domains(resized(parse("36x4xGB200"), 256)), ElementsAre(64, 256));
  EXPECT_THAT(domains(resized(parse("36x4xGB200"), 2)), ElementsAre(2));
  EXPECT_THAT(domains(resized(parse("{node: 8xL40S, numa: {nodes: 2, bandwidth: 60GB/s}}"), 6)),
              ElementsAre(3, 6));
  EXPECT_THAT(domains(resized(parse("{node: 8xL40S, numa: {nodes: 2, bandwidth: 60GB/s}}"), 4)),
              ElementsAre(4));
}

TEST(Resized, RefusesWhatIsNoWholeNode) {
  const Cluster cluster = parse("4x8xH100-SXM");
  const auto problem = [](const Cluster& from, std::int64_t devices) {
    return refusal([&] { resized(from, devices); });
  };
  EXPECT_THAT(problem(cluster, 12),
              HasSubstr("12 devices of 4x8xH100-SXM; allowed: 1 to 8, or a multiple of 8"));
  EXPECT_THAT(problem(cluster, 0), HasSubstr("allowed: 1 to 8"));
  EXPECT_THAT(problem(cluster, std::int64_t{1} << 40), HasSubstr("up to 1048576"));
  EXPECT_THAT(problem(parse("4xRTX-4090"), 8), HasSubstr("nics must be given"));
}

TEST(Files, HoldEveryKey) {
  const Cluster cluster = parse(R"(
name: lab
device: {like: H100-SXM, name: H100-tuned, memory: 79GiB, bf16_flops: 800 TFLOPS, memory_bandwidth: 3TB/s}
nodes: 4
devices_per_node: 4
usable_memory: 75GiB
host_memory: 2TiB
scale_up: {name: bridge, devices: 2, bandwidth: 300GB/s, pair_bandwidth: 200GB/s, latency: 2us}
pcie: {bandwidth: 50GB/s, latency: 900ns}
numa: {nodes: 2}
nics: {count: 2, rate: 200Gb/s, latency: 5us}
switches: [{name: leaf, nodes: 2}, {name: spine, oversubscription: 1.5}]
storage: 40GB/s
input_rate: 5M
)");
  EXPECT_EQ(cluster.name, "lab");
  EXPECT_EQ(cluster.device.name, "H100-tuned");
  EXPECT_EQ(cluster.device.architecture, "Hopper");
  EXPECT_EQ(cluster.device.bf16_flops, 800e12);
  EXPECT_EQ(cluster.device.fp8_flops, 1979e12);
  EXPECT_EQ(cluster.device.memory_bytes, std::int64_t{79} << 30);
  EXPECT_EQ(cluster.usable_bytes, std::int64_t{75} << 30);
  EXPECT_EQ(cluster.host_memory_bytes, std::int64_t{2} << 40);
  EXPECT_EQ(cluster.numa_nodes, 2);
  EXPECT_EQ(cluster.storage_bandwidth, 40e9);
  EXPECT_EQ(cluster.input_rate, 5e6);
  EXPECT_THAT(cluster.levels,
              ElementsAre(Level{"bridge", 2, 300e9, 200e9, 2e-6}, Level{"pcie", 4, 50e9, 50e9, 900 * 1e-9},
                          Level{"leaf", 8, 12.5e9, 25e9, 5 * 1e-6},
                          Level{"spine", 16, 12.5e9 / 1.5, 25e9, 5 * 1e-6}));
}

TEST(Files, WrittenAndReadBackAreTheSame) {
  const std::vector<std::string> clusters = {
      "8xH100-SXM", "64x4xGB200",
      "{nodes: 3, node: 8xA100-PCIe, scale_up: {devices: 2, latency: 1.7us}, numa: {nodes: 2, bandwidth: "
      "60.5GB/s}, "
      "switches: [{name: leaf, nodes: 1}, {name: spine, oversubscription: 1.3}], nics: 2x100G}",
      "{device: {name: mine, architecture: odd, memory: 12345678B, bf16_flops: 1.23456e12, "
      "matmul_efficiency: 0.7}, "
      "devices_per_node: 2, scale_up: {devices: 2, bandwidth: 1.7GB/s}, input_rate: 12345.678, storage: "
      "3GB/s}",
      "{device: {like: MI300X, memory_bandwidth: 4TB/s}, devices_per_node: 8, host_memory: 1.5TB, pcie: "
      "{devices: 4}}"};
  for (const std::string& text : clusters) {
    const Cluster cluster = parse(text);
    const Cluster again = parse(cluster_yaml(cluster));
    EXPECT_EQ(again.device, cluster.device) << text;
    EXPECT_EQ(again.levels, cluster.levels) << cluster_yaml(cluster);
    EXPECT_EQ(again.scale_up, cluster.scale_up);
    EXPECT_EQ(again.pcie, cluster.pcie);
    EXPECT_EQ(again.switches, cluster.switches);
    EXPECT_EQ(cluster_yaml(again), cluster_yaml(cluster));
    EXPECT_EQ(again.usable_bytes, cluster.usable_bytes);
    EXPECT_EQ(again.host_memory_bytes, cluster.host_memory_bytes);
    EXPECT_EQ(again.input_rate, cluster.input_rate);
  }
}

TEST(Detect, ThisMachineIsDescribedAndCanBeWritten) {
  const Cluster machine = detect_cluster();
  EXPECT_EQ(machine.device.name, "cpu");
  EXPECT_GE(machine.devices(), 1);
  EXPECT_GE(machine.numa_nodes, 1);
  EXPECT_GT(machine.host_memory_bytes, std::int64_t{100} << 20);
  EXPECT_LE(machine.usable_bytes * machine.devices(), machine.host_memory_bytes);
  EXPECT_EQ(machine.levels.back().devices, machine.devices());
  const Cluster again = parse(cluster_yaml(machine));
  EXPECT_EQ(again.devices(), machine.devices());
  EXPECT_EQ(again.device, machine.device);
  EXPECT_EQ(again.levels.size(), machine.levels.size());
}

}  // namespace
}  // namespace ndmesh::cluster
