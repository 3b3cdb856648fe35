#include "ndmesh/measure/trace.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"

namespace ndmesh::measure {
namespace {

using nlohmann::ordered_json;

constexpr int step_row = 0;
constexpr int schedule_row = 1;
constexpr int flight_row = 2;

ordered_json row_name(std::size_t rank, int row, const std::string& name) {
  return {{"name", "thread_name"}, {"ph", "M"}, {"pid", rank}, {"tid", row}, {"args", {{"name", name}}}};
}

ordered_json slice(std::size_t rank, int row, std::string_view name, double begin, double end) {
  return {{"name", name}, {"ph", "X"},         {"pid", rank},
          {"tid", row},   {"ts", begin * 1e6}, {"dur", (end - begin) * 1e6}};
}

ordered_json in_flight(std::size_t rank, std::size_t id, const std::string& name, const char* phase,
                       double at) {
  return {{"name", name}, {"cat", "collective"}, {"ph", phase},   {"id", id},
          {"pid", rank},  {"tid", flight_row},   {"ts", at * 1e6}};
}

}  // namespace

void RankTrace::add(Part part, double begin, double end) {
  slices_.push_back({part, begin, end});
}

void RankTrace::add(const comm::CollectiveRecord& record) {
  collectives_.push_back({record.group->name() + "/" + std::string(comm::name_of(record.op)), record.label,
                          record.bytes, record.started, record.waited, record.finished, record.skew,
                          record.transfer});
}

void RankTrace::add(const schedule::Action& action, double begin, double end) {
  using schedule::ActionKind;
  switch (action.kind) {
    case ActionKind::send_forward:
    case ActionKind::receive_forward:
    case ActionKind::send_backward:
    case ActionKind::receive_backward:
    case ActionKind::optimizer:  // a part of the step
      return;
    default:
      actions_.push_back({action, begin, end});
  }
}

/// Of the rank's events; infinity when there are none.
double RankTrace::begin() const {
  double earliest = std::numeric_limits<double>::infinity();
  for (const Slice& part : slices_) {
    earliest = std::min(earliest, part.begin);
  }
  for (const Action& timed : actions_) {
    earliest = std::min(earliest, timed.begin);
  }
  for (const Collective& collective : collectives_) {
    earliest = std::min(earliest, collective.started);
  }
  return earliest;
}

/// The rank's events; its number is `rank`, and times count from `origin`.
void RankTrace::write(std::size_t rank, double origin, ordered_json& events) const {
  events.push_back({{"name", "process_name"},
                    {"ph", "M"},
                    {"pid", rank},
                    {"args", {{"name", "rank " + std::to_string(rank)}}}});
  events.push_back(row_name(rank, step_row, "step"));
  events.push_back(row_name(rank, schedule_row, "schedule"));
  events.push_back(row_name(rank, flight_row, "in flight"));
  for (const Slice& part : slices_) {
    events.push_back(slice(rank, step_row, part_names[static_cast<std::size_t>(part.part)],
                           part.begin - origin, part.end - origin));
  }
  for (const Action& timed : actions_) {
    events.push_back(slice(rank, schedule_row, schedule::name_of(timed.action.kind), timed.begin - origin,
                           timed.end - origin));
    events.back()["args"] = {{"chunk", timed.action.chunk}, {"micro_batch", timed.action.micro_batch}};
  }
  std::size_t id = 0;
  for (const Collective& collective : collectives_) {
    events.push_back(
        slice(rank, step_row, collective.name, collective.waited - origin, collective.finished - origin));
    events.back()["args"] = {{"label", collective.label},
                             {"bytes", collective.bytes},
                             {"skew_us", collective.skew * 1e6},
                             {"transfer_us", collective.transfer * 1e6}};
    events.push_back(in_flight(rank, id, collective.label, "b", collective.started - origin));
    events.back()["args"] = {{"bytes", collective.bytes}};
    events.push_back(in_flight(rank, id++, collective.label, "e", collective.finished - origin));
  }
}

void Trace::write(const std::filesystem::path& file) const {
  double origin = std::numeric_limits<double>::infinity();
  for (const RankTrace& rank : ranks_) {
    origin = std::min(origin, rank.begin());
  }
  ordered_json events = ordered_json::array();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].write(rank, origin, events);
  }
  const ordered_json document = {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  if (!(std::ofstream(file) << document.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n'
                            << std::flush)) {
    throw RunError("cannot write " + file.string());
  }
}

}  // namespace ndmesh::measure
