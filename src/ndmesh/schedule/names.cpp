#include <array>

#include "ndmesh/base/error.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/schedule/schedule.h"

namespace ndmesh::schedule {
namespace {

constexpr std::array<std::string_view, 5> kind_names = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
constexpr std::array<std::string_view, 14> action_names = {
    "forward",         "backward",      "input_grad",       "weight_grad", "send_forward",
    "receive_forward", "send_backward", "receive_backward", "unshard",     "reshard",
    "reduce",          "recompute",     "offload",          "reload"};

}  // namespace

std::string_view name_of(Kind kind) {
  return kind_names[static_cast<std::size_t>(kind)];
}

Kind kind_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kind_names.size(); ++i) {
    if (kind_names[i] == name) return static_cast<Kind>(i);
  }
  const std::vector<std::string> names(kind_names.begin(), kind_names.end());
  throw RequestError("pipeline.schedule: " + shown(std::string(name)) +
                     " is no schedule; allowed: " + join(names) + did_you_mean(std::string(name), names));
}

std::string_view name_of(ActionKind kind) {
  return kind == ActionKind::optimizer ? "optimizer" : action_names[static_cast<std::size_t>(kind)];
}

bool splits_backward(Kind kind) {
  return kind == Kind::zb_h1 || kind == Kind::zb_v;
}

}  // namespace ndmesh::schedule
