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
constexpr int flight_row = 1;

ordered_json row_name(std::size_t rank, int row, const std::string& name) {
  return {{"name", "thread_name"}, {"ph", "M"}, {"pid", rank}, {"tid", row}, {"args", {{"name", name}}}};
}

ordered_json slice(std::size_t rank, const std::string& name, double begin, double end) {
  return {{"name", name},    {"ph", "X"},         {"pid", rank},
          {"tid", step_row}, {"ts", begin * 1e6}, {"dur", (end - begin) * 1e6}};
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

void Trace::write(const std::filesystem::path& file) const {
  double origin = std::numeric_limits<double>::infinity();
  for (const RankTrace& rank : ranks_) {
    for (const auto& part : rank.slices_) {
      origin = std::min(origin, part.begin);
    }
    for (const auto& collective : rank.collectives_) {
      origin = std::min(origin, collective.started);
    }
  }
  ordered_json events = ordered_json::array();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", rank},
                      {"args", {{"name", "rank " + std::to_string(rank)}}}});
    events.push_back(row_name(rank, step_row, "step"));
    events.push_back(row_name(rank, flight_row, "in flight"));
    for (const auto& part : ranks_[rank].slices_) {
      events.push_back(slice(rank, std::string(part_names[static_cast<std::size_t>(part.part)]),
                             part.begin - origin, part.end - origin));
    }
    std::size_t id = 0;
    for (const auto& collective : ranks_[rank].collectives_) {
      ordered_json wait =
          slice(rank, collective.name, collective.waited - origin, collective.finished - origin);
      wait["args"] = {{"label", collective.label},
                      {"bytes", collective.bytes},
                      {"skew_us", collective.skew * 1e6},
                      {"transfer_us", collective.transfer * 1e6}};
      events.push_back(wait);
      events.push_back(in_flight(rank, id, collective.label, "b", collective.started - origin));
      events.back()["args"] = {{"bytes", collective.bytes}};
      events.push_back(in_flight(rank, id++, collective.label, "e", collective.finished - origin));
    }
  }
  const ordered_json document = {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  if (!(std::ofstream(file) << document.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n'
                            << std::flush)) {
    throw RunError("cannot write " + file.string());
  }
}

}  // namespace ndmesh::measure
