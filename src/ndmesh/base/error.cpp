#include "ndmesh/base/error.h"

namespace ndmesh {
namespace {

std::string join_lines(const std::vector<std::string>& problems) {
  std::string text;
  for (const std::string& problem : problems) {
    text += (text.empty() ? "" : "\n") + problem;
  }
  return text;
}

}  // namespace

RequestError::RequestError(std::vector<std::string> problems)
    : Error(join_lines(problems)), problems_(std::move(problems)) {}

void Problems::add(std::string problem) {
  list_.push_back(std::move(problem));
}

void Problems::raise() const {
  if (!list_.empty()) {
    throw RequestError(list_);
  }
}

}  // namespace ndmesh
