#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "cluster/support.h"

namespace ndmesh::cluster {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Refusal, OfShortForms) {
  EXPECT_THAT(refusal_of("8xH100-SMX"), HasSubstr("did you mean H100-SXM?"));
  EXPECT_THAT(refusal_of("0xH100-SXM"), HasSubstr("cluster is \"0\"; allowed: an integer, 1 to"));
  EXPECT_THAT(refusal_of("99999999999999999999xH100-SXM"), HasSubstr("allowed: an integer"));
  EXPECT_THAT(refusal_of("8x4096xH100-SXM"), HasSubstr("at most 1024 devices a node"));
  EXPECT_THAT(refusal_of("1000000x8xH100-SXM"), HasSubstr("more than 1048576 devices; at most 131072 nodes"));
  EXPECT_THAT(refusal_of("-8xH100-SXM"), HasSubstr("is no device of the catalogue"));
  EXPECT_THAT(refusal_of("2x2x2xH100-SXM"), HasSubstr("\"2xH100-SXM\" is no device"));
  EXPECT_THAT(refusal_of(""),
              HasSubstr("cluster is nothing; allowed: devices as in 8xH100-SXM, a mapping, or a file"));
  EXPECT_THAT(refusal_of("[8xH100-SXM]"), HasSubstr("is a list"));
}

TEST(Refusal, OfMoreDevicesThanTheLinkJoins) {
  EXPECT_THAT(refusal_of("16xH100-SXM"), AllOf(HasSubstr("16 devices of H100-SXM in one node"),
                                               HasSubstr("nvlink joins at most 8; write 2x8xH100-SXM")));
  EXPECT_THAT(refusal_of("12xH100-SXM"), HasSubstr("write NODESx8xH100-SXM"));
  EXPECT_THAT(refusal_of("{node: 16xV100-SXM, scale_up: {devices: 16}}"), IsEmpty());
  EXPECT_THAT(refusal_of("16xL40S"), IsEmpty());
}

TEST(Refusal, OfSizesThatDoNotDivide) {
  EXPECT_THAT(refusal_of("{nodes: 2, node: 8xH100-SXM, scale_up: {devices: 3}}"),
              HasSubstr("scale_up.devices is 3; allowed: a divisor or a multiple of devices_per_node, 8"));
  EXPECT_THAT(refusal_of("{node: 8xL40S, pcie: {devices: 3}}"),
              HasSubstr("pcie.devices is 3; allowed: a divisor of devices_per_node, 8"));
  EXPECT_THAT(refusal_of("{node: 8xL40S, numa: {nodes: 3, bandwidth: 20GB/s}}"),
              HasSubstr("numa.nodes is 3; allowed with numa.bandwidth: a divisor of devices_per_node, 8"));
  EXPECT_THAT(refusal_of("{node: 12xA100-PCIe, scale_up: {devices: 4}, pcie: {devices: 6}}"),
              HasSubstr("scale_up.devices is 4, which neither divides the 6 devices of one PCIe switch"));
  EXPECT_THAT(refusal_of("{node: 8xL40S, pcie: {devices: 8}, numa: {nodes: 2, bandwidth: 20GB/s}}"),
              HasSubstr("pcie.devices is 8; allowed: a divisor of the 4 devices of a NUMA node"));
  EXPECT_THAT(refusal_of("{nodes: 64, node: 8xH100-SXM, switches: [{nodes: 6}, {nodes: 9}, {}]}"),
              HasSubstr("switches[1].nodes is 9; allowed: a multiple of the 6 nodes of the level below"));
  EXPECT_THAT(refusal_of("{nodes: 64, node: 8xH100-SXM, switches: [{nodes: 6}, {nodes: 6}, {}]}"),
              HasSubstr("switches[1].nodes is 6; allowed: a multiple"));
  EXPECT_THAT(
      refusal_of("{nodes: 64, node: 4xGB200, switches: [{nodes: 8}, {}]}"),
      HasSubstr("switches[0].nodes is 8; allowed: a multiple of the 16 nodes of one scale-up domain"));
  EXPECT_THAT(refusal_of("{nodes: 64, node: 8xH100-SXM, switches: [{nodes: 8}, {nodes: 32}]}"),
              HasSubstr("switches[1].nodes is 32, but the last level joins all 64 nodes"));
}

TEST(Refusal, OfKeys) {
  EXPECT_THAT(
      refusal_of("{node: 8xH100-SXM, nick: 8x400G}"),
      HasSubstr("cluster: unknown key \"nick\"; did you mean nics?; keys: name, nodes, node, device"));
  EXPECT_THAT(
      refusal_of("{node: 8xH100-SXM, pcie: {bandwith: 3GB/s}}"),
      HasSubstr(
          "cluster: pcie: unknown key \"bandwith\"; did you mean bandwidth?; keys: devices, bandwidth"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, switches: [{node: 4}]}"),
              HasSubstr("switches[0]: unknown key \"node\"; did you mean nodes?"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, node: 4xH100-SXM}"), HasSubstr("\"node\" is given twice"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, device: L40S}"),
              HasSubstr("node and device are both given; node already says it"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, devices_per_node: 4}"),
              HasSubstr("node and devices_per_node are both given"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, switches: [{}], oversubscription: 2}"),
              HasSubstr("switches and oversubscription are both given"));
}

TEST(Refusal, OfWhatIsMissing) {
  EXPECT_THAT(refusal_of("{nodes: 4}"), AllOf(HasSubstr("device must be given, as in device: H100-SXM"),
                                              HasSubstr("devices_per_node must be given")));
  EXPECT_THAT(
      refusal_of("{nodes: 2, node: 8xRTX-4090}"),
      HasSubstr(
          "nics must be given: 2 nodes, and the catalogue knows no usual NIC of RTX-4090 (as in nics: 8x"));
  EXPECT_THAT(refusal_of("{device: {bf16_flops: 1T}, devices_per_node: 1}"),
              AllOf(HasSubstr("device.name must be given"), HasSubstr("device.memory must be given")));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, switches: [{oversubscription: 2}, {}]}"),
              HasSubstr("switches[0].nodes must be given"));
}

TEST(Refusal, OfValues) {
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, nodes: 2.5}"),
              HasSubstr("nodes is \"2.5\"; allowed: an integer"));
  EXPECT_THAT(refusal_of("{node: 2x8xH100-SXM}"), HasSubstr("node is \"2x8xH100-SXM\"; allowed: one node"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, usable_memory: 90GiB}"),
              HasSubstr("usable_memory is 90.00 GiB; allowed: at most the 79.65 GiB of H100-SXM"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, usable_memory: 70}"),
              HasSubstr("usable_memory is \"70\"; allowed: bytes"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, usable_memory: -1GiB}"),
              HasSubstr("allowed: bytes with a unit"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, host_memory: 1e30TB}"), HasSubstr("host_memory is \"1e30TB\""));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, host_memory: nanGiB}"), HasSubstr("host_memory is \"nanGiB\""));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, scale_up: {bandwidth: 450}}"),
              HasSubstr("scale_up.bandwidth is \"450\"; allowed: a rate with a unit, as in 450GB/s"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, scale_up: {latency: 2GB}}"),
              HasSubstr("scale_up.latency is \"2GB\""));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, scale_up: nvlink}"),
              HasSubstr("scale_up is \"nvlink\"; allowed: a mapping"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, nics: 400G}"),
              HasSubstr("nics is \"400G\"; allowed: the NICs of one node"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, nics: 8x400}"), HasSubstr("nics is \"400\"; allowed: a rate"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, nics: 0x400G}"),
              HasSubstr("nics is \"0\"; allowed: an integer, 1 to 1024"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, oversubscription: 0.5}"),
              HasSubstr("oversubscription is \"0.5\"; allowed: a number, 1 to 1000"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, switches: []}"),
              HasSubstr("switches is a list; allowed: a list of 1 to 8"));
  EXPECT_THAT(refusal_of("{device: {like: H101-SXM}, devices_per_node: 8}"),
              HasSubstr("did you mean H100-SXM?"));
  EXPECT_THAT(refusal_of("{device: {like: L4, matmul_efficiency: 1.5}, devices_per_node: 8}"),
              HasSubstr("device.matmul_efficiency is \"1.5\"; allowed: a number, above 0, at most 1"));
  EXPECT_THAT(refusal_of("{node: 8xH100-SXM, name: \"\\x07\"}"), HasSubstr("name is \"\\x07\"; allowed"));
  EXPECT_THAT(refusal_of("{nodes: 2, node: 8xH100-SXM, switches: [{name: nvlink}]}"),
              HasSubstr("two levels are named nvlink"));
}

TEST(Refusal, AllProblemsComeAtOnce) {
  EXPECT_THAT(
      refusal_of("{nodes: 0, node: 8xH100-SMX, nics: 8x400, pcie: {devices: 0, speed: 3}}"),
      AllOf(HasSubstr("nodes is \"0\""), HasSubstr("did you mean H100-SXM?"), HasSubstr("nics is \"400\""),
            HasSubstr("pcie.devices is \"0\""), HasSubstr("unknown key \"speed\"")));
}

TEST(Refusal, OfFiles) {
  EXPECT_THAT(refusal_of("no/such/cluster.yaml"), HasSubstr("cannot be read"));
  EXPECT_THAT(refusal_of("cluster.yml"), HasSubstr("cannot be read"));
  EXPECT_THAT(refusal_of("/dev/zero"), HasSubstr("is not a regular file"));
  const auto file = std::filesystem::temp_directory_path() / "ndmesh_cluster_test.yaml";
  std::ofstream(file) << "other.yaml\n";
  EXPECT_THAT(refusal([&] { read_cluster(file); }), HasSubstr("\"other.yaml\" is no device"));
  std::ofstream(file) << "{nodes: 2, node: 8xA100-SXM}\n";
  EXPECT_EQ(parse(file.string()).devices(), 16);
  std::filesystem::remove(file);
}

/// A text with a few bytes replaced, removed, doubled or swapped for parts of the vocabulary.
std::string mutated(std::string text, std::mt19937& random) {
  static const std::vector<std::string> parts = {"{",
                                                 "}",
                                                 "[",
                                                 "]",
                                                 ":",
                                                 ", ",
                                                 "\n",
                                                 "  ",
                                                 "- ",
                                                 "x",
                                                 "0",
                                                 "-1",
                                                 "1e308",
                                                 "nan",
                                                 "GiB",
                                                 "GB/s",
                                                 "null",
                                                 "\"",
                                                 "~",
                                                 "&a ",
                                                 "*a",
                                                 "!!binary ",
                                                 "99999999999999999999",
                                                 "\xff\xfe",
                                                 "nodes: ",
                                                 "switches: [{}]",
                                                 "like: ",
                                                 "device: "};
  const auto at = [&](std::size_t size) {
    return std::uniform_int_distribution<std::size_t>(0, size)(random);
  };
  for (std::size_t edits = 1 + at(3); edits > 0; --edits) {
    const std::size_t position = at(text.size());
    switch (at(2)) {
      case 0:
        text.insert(position, parts[at(parts.size() - 1)]);
        break;
      case 1:
        text.erase(position, 1 + at(5));
        break;
      default:
        text.replace(position, 1, parts[at(parts.size() - 1)]);
    }
  }
  return text;
}

/// Any bytes are a cluster that holds together, or refused.
TEST(Fuzz, ChangedFilesAreReadOrRefused) {
  const std::vector<std::string> seeds = {
      "64x8xH100-SXM", "{nodes: 64, node: 8xH100-SXM, nics: 8x400G, oversubscription: 2}",
      "device: {like: H100-SXM, name: a, memory: 79GiB, bf16_flops: 800T}\nnodes: 4\ndevices_per_node: 4\n"
      "usable_memory: 75GiB\nscale_up: {name: b, devices: 2, bandwidth: 300GB/s, latency: 2us}\n"
      "pcie: {devices: 2, bandwidth: 50GB/s}\nnuma: {nodes: 2, bandwidth: 9GB/s}\n"
      "nics: {count: 2, rate: 200Gb/s, latency: 5us}\nswitches:\n  - {name: leaf, nodes: 2}\n"
      "  - {name: spine, oversubscription: 1.5}\nstorage: 40GB/s\ninput_rate: 5M\n"};
  std::mt19937 random(7);
  int read = 0;
  int refused = 0;
  for (int i = 0; i < 6000; ++i) {
    const std::string text = mutated(seeds[static_cast<std::size_t>(i) % seeds.size()], random);
    try {
      const Cluster cluster = parse(text);
      ASSERT_GE(cluster.devices(), 1);
      ASSERT_FALSE(cluster.levels.empty());
      ASSERT_EQ(cluster.levels.back().devices, cluster.devices()) << text;
      ASSERT_GT(cluster.levels.back().bandwidth, 0) << text;
      ASSERT_EQ(parse(cluster_yaml(cluster)).levels, cluster.levels) << text;
      ++read;
    } catch (const RequestError& error) {
      ASSERT_FALSE(error.problems().empty());
      ++refused;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace ndmesh::cluster
