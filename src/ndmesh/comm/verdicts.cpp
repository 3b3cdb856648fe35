// How a World finds out that a run cannot go on, and what it says about it.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "ndmesh/comm/threads_world.h"

namespace ndmesh::comm {
namespace {

constexpr std::array<std::string_view, 4> phase_names = {"setup", "first_step", "step", "save"};
constexpr std::size_t most_ranks_shown = 16;

std::string_view name_of(Phase phase) {
  return phase_names[static_cast<std::size_t>(phase)];
}

}  // namespace

std::string ranks_text(const std::vector<std::int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t shown = std::min(ranks.size(), most_ranks_shown);
  for (std::size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == ranks.size();
    text += (i == 0 ? "" : last ? " and " : ", ") + std::to_string(ranks[i]);
  }
  return shown == ranks.size() ? text : fmt::format("{} and {} more", text, ranks.size() - shown);
}

Phase World::phase_of(std::int64_t rank) const {
  const std::lock_guard lock(at(rank).note_mutex);
  return at(rank).phase;
}

std::chrono::milliseconds World::limit_of(std::int64_t rank) const {
  switch (phase_of(rank)) {
    case Phase::setup:
      return limits_.setup;
    case Phase::first_step:
      return limits_.first_step;
    case Phase::step:
      return limits_.step;
    case Phase::save:
      return limits_.save;
  }
  return limits_.step;
}

std::string World::whereabouts(std::int64_t rank) const {
  const std::lock_guard lock(at(rank).note_mutex);
  const Rank& r = at(rank);
  return fmt::format("rank {} was in {} and {}", rank,
                     r.what.empty() ? fmt::format("phase {}", name_of(r.phase)) : r.what,
                     r.last_call ? "had last called " + r.last_call->text() : "had called nothing");
}

std::string World::waiting_text(std::int64_t rank, const Blocker& blocker) const {
  const std::vector<std::int64_t> missing = blocker.missing();
  return fmt::format("rank {} waits in {}{}", rank, blocker.text(),
                     missing.empty() ? "" : " for " + ranks_text(missing));
}

bool World::blocked(std::int64_t rank) const {
  const Blocker* blocker = at(rank).blocker;
  return blocker != nullptr && !blocker->ready();
}

void World::judge(std::int64_t rank, Clock::time_point since) {
  if (std::optional<std::string> dead = find_dead()) {
    return end_run(std::move(*dead), std::nullopt);
  }
  if (std::optional<std::string> stuck = find_stuck()) {
    return end_run(std::move(*stuck), std::nullopt);
  }
  if (Clock::now() - since >= limit_of(rank)) {
    late_ = true;
    end_run(late_text(rank), std::nullopt);
  }
}

std::optional<std::string> World::find_dead() const {
  if (live_ == mesh_.world()) {
    return std::nullopt;
  }
  for (std::int64_t rank = 0; rank < mesh_.world(); ++rank) {
    if (!blocked(rank)) {
      continue;
    }
    for (const std::int64_t peer : at(rank).blocker->missing()) {
      if (at(peer).done) {
        return fmt::format("dead: rank {} returned while {}\n  {}", peer,
                           waiting_text(rank, *at(rank).blocker), whereabouts(peer));
      }
    }
  }
  return std::nullopt;
}

std::optional<std::string> World::find_stuck() const {
  if (asleep_ < live_) {
    return std::nullopt;
  }
  std::string text = "stuck: every rank waits, and nothing can arrive";
  std::size_t shown = 0;
  for (std::int64_t rank = 0; rank < mesh_.world(); ++rank) {
    if (at(rank).done) {
      continue;
    }
    if (!blocked(rank)) {
      return std::nullopt;  // it can go on, and is about to
    }
    if (++shown <= most_ranks_shown) {
      text += "\n  " + waiting_text(rank, *at(rank).blocker);
    }
  }
  return text;
}

std::vector<std::int64_t> World::behind_delay(std::int64_t rank) const {
  std::set<std::int64_t> seen = {rank};
  std::vector<std::int64_t> frontier = {rank};
  std::vector<std::int64_t> late;
  while (!frontier.empty()) {
    const std::int64_t next = frontier.back();
    frontier.pop_back();
    if (!blocked(next)) {
      late.push_back(next);
      continue;
    }
    for (const std::int64_t peer : at(next).blocker->missing()) {
      if (seen.insert(peer).second) {
        frontier.push_back(peer);
      }
    }
  }
  std::sort(late.begin(), late.end());
  return late;
}

std::string World::late_text(std::int64_t rank) const {
  const std::vector<std::int64_t> late = behind_delay(rank);
  const std::string phase(name_of(phase_of(rank)));
  std::string text = fmt::format(
      "late: {} did not arrive within {} s, the limit of phase {} (run.{}_limit); {}",
      late.empty() ? "a peer" : ranks_text(late), static_cast<double>(limit_of(rank).count()) / 1000, phase,
      phase, waiting_text(rank, *at(rank).blocker));
  for (std::size_t i = 0; i < std::min(late.size(), most_ranks_shown); ++i) {
    text += "\n  " + whereabouts(late[i]);
  }
  return text + "\n  If it is slow rather than lost, raise run." + phase + "_limit.";
}

}  // namespace ndmesh::comm
