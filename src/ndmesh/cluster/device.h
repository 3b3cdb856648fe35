#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ndmesh/base/dtype.h"
#include "ndmesh/cluster/level.h"

namespace ndmesh::cluster {

/// How far the link between devices reaches.
enum class LinkReach : std::uint8_t {
  bridge,  ///< joins pairs of cards in nodes that have it: counted only when a cluster says so
  node,    ///< joins the devices of one node
  rack,    ///< joins the devices of several nodes
};

/// One kind of accelerator, with dense peaks and one-direction bandwidths. A figure of 0 is not known; a plan that
/// needs an unknown one says so.
struct Device {
  std::string name;          ///< "H100-SXM"
  std::string like;          ///< the device of the catalogue that its figures come from; empty: none
  std::string architecture;  ///< "Hopper"; decides kernel behaviour that peaks do not tell
  double bf16_flops = 0;     ///< dense FLOP/s of bfloat16 and float16 products
  double fp32_flops = 0;     ///< of float32 products (tensor-core formats off)
  double fp8_flops = 0;
  double fp4_flops = 0;
  std::int64_t memory_bytes = 0;  ///< what the driver reports, not the label
  double memory_bandwidth = 0;    ///< bytes/s
  double host_bandwidth = 0;      ///< bytes/s to host memory, one direction
  double matmul_efficiency = 0;   ///< measured share of bf16_flops in large products

  Level scale_up;  ///< the link between devices without the host (NVLink, xGMI): `devices` is the largest
                   ///< domain, 1 when there is none
  LinkReach link_reach = LinkReach::node;
  double pcie_bandwidth = 0;  ///< bytes/s, one direction
  double nic_bandwidth = 0;   ///< bytes/s of the NICs that nodes usually have for each device
  /// bytes/s, measured: bus bandwidth of an all-reduce of 512 MiB over 8 devices of a node by the vendor's library. A
  /// reduction in the switch may pass the line rate.
  double bus_bandwidth = 0;

  /// Dense peak of products in `dtype`: 0 when it is not known.
  double peak_flops(DType dtype) const;
  /// A core of a machine, as detect_cluster() names it, also when read back from a file: no driver's context.
  bool is_host() const { return name == "cpu"; }
  bool operator==(const Device&) const = default;
};

/// Names of the catalogue, without aliases, for help and messages.
std::vector<std::string> device_names();

/// A device by name or alias (H100-SXM, A100-80GB-SXM, GB200-NVL72, ...); case, '-' and '_' do not matter.
/// RequestError with the nearest.
Device device(std::string_view name);

/// One entry of the catalogue.
struct Figure {
  std::string name;    ///< "bf16_tflops": the unit is part of the name
  std::string value;   ///< as written in the catalogue
  std::string source;  ///< where it comes from, in words
};

/// All that the catalogue holds on a device, notes included. RequestError as device().
std::vector<Figure> device_figures(std::string_view name);

}  // namespace ndmesh::cluster
