#include <stdexcept>

#include "fuzz/target.h"
#include "ndmesh/schedule/schedule_file.h"
#include "ndmesh/schedule/simulate.h"

namespace {

constexpr std::int64_t most_passes = 4096;  // the proof and the simulation take a pass after the other

}  // namespace

/// A schedule file; what is found sound runs to its end.
void ndmesh::fuzz::one_input(std::string_view bytes) {
  const schedule::Schedule schedule = schedule::parse_schedule(bytes, "file.schedule");
  if (schedule.shape.stages() * schedule.shape.micro_batches > most_passes) return;
  if (!schedule::defects(schedule).empty()) return;
  const std::vector<schedule::StageSeconds> stages(
      static_cast<std::size_t>(schedule.shape.stages()),
      {.forward = 1, .input_grad = 1, .weight_grad = 1, .send = 1});
  if (schedule::simulate_list(schedule, stages).bubble() >= 1) {
    throw std::logic_error("a sound schedule in which nobody works");
  }
  for (std::int64_t rank = 0; rank < schedule.shape.ranks; ++rank) {
    if (schedule::most_in_flight(schedule, rank) < 1) {
      throw std::logic_error("a rank that works holds nothing");
    }
  }
}
