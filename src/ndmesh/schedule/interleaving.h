#pragma once

#include <cstdint>

namespace ndmesh::schedule {

/// How micro-batches are dealt out when a rank has several chunks: in rounds of pp (classic, Megatron-LM), or
/// in equal rounds of at least pp (flexible); fewer micro-batches than pp are one round.
enum class Interleaving { classic, flexible };

/// max(1, micro_batches / pp). Numbers are at least 1.
std::int64_t interleaving_rounds(std::int64_t micro_batches, std::int64_t pp);

/// Whether interleaved chunks can deal out `micro_batches`: a multiple of pp (classic), or of the number of
/// rounds (flexible). What is classic is flexible too, with the same rounds.
bool interleaves(std::int64_t micro_batches, std::int64_t pp, Interleaving interleaving);

}  // namespace ndmesh::schedule
