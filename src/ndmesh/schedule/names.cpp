#include <algorithm>
#include <array>

#include "ndmesh/base/error.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/schedule/schedule.h"

namespace ndmesh::schedule {
namespace {

constexpr std::array<std::string_view, 5> names_by_kind = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
constexpr std::array<std::string_view, 14> action_names = {
    "forward",         "backward",      "input_grad",       "weight_grad", "send_forward",
    "receive_forward", "send_backward", "receive_backward", "unshard",     "reshard",
    "reduce",          "recompute",     "offload",          "reload"};

}  // namespace

std::string_view name_of(Kind kind) {
  return names_by_kind[static_cast<std::size_t>(kind)];
}

std::vector<std::string> kind_names() {
  return {names_by_kind.begin(), names_by_kind.end()};
}

Kind kind_from_name(std::string_view name) {
  const auto found = std::find(names_by_kind.begin(), names_by_kind.end(), name);
  if (found != names_by_kind.end()) return static_cast<Kind>(found - names_by_kind.begin());
  const std::vector<std::string> names = kind_names();
  throw RequestError("pipeline.schedule: " + shown(std::string(name)) +
                     " is no schedule; allowed: " + join(names) + did_you_mean(std::string(name), names));
}

std::string_view name_of(ActionKind kind) {
  return kind == ActionKind::optimizer ? "optimizer" : action_names[static_cast<std::size_t>(kind)];
}

std::int64_t least_chunks(Kind kind) {
  return kind == Kind::interleaved || kind == Kind::zb_v ? 2 : 1;
}

bool splits_backward(Kind kind) {
  return kind == Kind::zb_h1 || kind == Kind::zb_v;
}

}  // namespace ndmesh::schedule
