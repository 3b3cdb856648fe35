#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ndmesh {

/// The candidate with the fewest typing errors (insert, delete, replace, swap of neighbours) away from
/// `word`; empty when none is near enough to be meant (more errors than a third of the word's length, at
/// least 2).
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// "; did you mean X?", or nothing when no candidate is near. To end a message with.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace ndmesh
