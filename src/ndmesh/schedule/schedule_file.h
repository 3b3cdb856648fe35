#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "ndmesh/schedule/schedule.h"

namespace ndmesh::schedule {

/// What names of schedule files end in.
constexpr std::string_view file_ending = ".schedule";

/// A schedule as text: a line for each rank, in order, with its compute actions in order: F forward, B backward, I input
/// gradient, W weight gradient, each with chunk.micro-batch ("F0.1"). `#` begins a comment. A line `v` says that chunk 1
/// goes back through the ranks (zb-v's placement); else stage s is chunk s / p of rank s mod p. Sends, receives and the
/// optimizer are added. The kind of its shape says its placement, no more. RequestError, by line, for what is no action
/// and for numbers beyond max_passes; whether it can run, defects() says.
Schedule parse_schedule(std::string_view text, const std::string& source);
Schedule read_schedule(const std::filesystem::path& file);

/// Most passes between their forward and the end of their backward, of a schedule of any origin.
std::int64_t most_in_flight(const Schedule& schedule, std::int64_t rank);
/// The same where a pass of chunk c weighs weights[c].
std::int64_t most_in_flight(const Schedule& schedule, std::int64_t rank,
                            std::span<const std::int64_t> weights);

}  // namespace ndmesh::schedule
