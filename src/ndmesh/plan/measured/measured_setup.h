#pragma once

#include <string>

#include "ndmesh/cluster/cluster.h"
#include "ndmesh/plan/measured/measured_row.h"
#include "ndmesh/plan/problem.h"

namespace ndmesh::plan {

/// The devices that a row ran on: `gpu` (a remark in brackets is cut), `nodes_gpus_per_node` ("16x8"; without
/// it nodes of 8), and the network cards that `interconnect` names ("4x 100Gb RoCE per node", "1600 Gbps
/// RoCE", "400 Gb/s RDMA per GPU"); where it names none, the device's usual ones. An unknown device is a
/// problem of the row.
cluster::Cluster measured_cluster(const MeasuredRow& row);

/// The network cards of one node as `interconnect` says, in the notation of a cluster ("8x200G"); empty when
/// it does not.
std::string nics_of(std::string_view interconnect, std::int64_t devices_per_node);

/// The runtime that the row's `group`, or else its `source`, ran: one of runtime_names(). Trainers of other
/// names go by the nearest kind: FSDP trainers as torchtitan, Megatron and its relatives as megatron, ZeRO
/// engines as deepspeed.
std::string measured_runtime(const MeasuredRow& row);

/// Number formats by `precision`, `optimizer` and notes. 4-bit products, which are not modelled, are a
/// problem of the row.
Precision measured_precision(const MeasuredRow& row);

/// Tokens whose logits exist at a time, of `tokens` in a micro-batch; 0 when all do. Sources that chunk the
/// loss without saying how often are taken to do it 8 times.
std::int64_t measured_loss_chunk(const MeasuredRow& row, std::int64_t tokens);

}  // namespace ndmesh::plan
