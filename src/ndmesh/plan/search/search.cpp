#include "ndmesh/plan/search/search.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <numeric>

#include "ndmesh/base/error.h"
#include "ndmesh/plan/parallel.h"
#include "ndmesh/plan/search/mesh_judge.h"

namespace ndmesh::plan {
namespace {

/// Groups of meshes that are judged at a time: the limit stays as it is among them, so that the result does
/// not depend on how many threads there are.
constexpr std::size_t together = 16;

class Search {
 public:
  Search(const Problem& problem, const Constants& constants, const Held& held, std::int64_t top)
      : problem_(problem), held_(held), space_(problem, held), top_(static_cast<std::size_t>(top)) {
    for (std::size_t thread = 0; thread < thread_count(); ++thread) {
      judges_.push_back(std::make_unique<MeshJudge>(problem, constants));
    }
  }

  SearchResult run() {
    const auto start = std::chrono::steady_clock::now();
    count_meshes();
    group_meshes();
    find_fastest();
    if (result_.plans.size() < top_) {
      find_leanest();
    }
    for (const auto& judge : judges_) {
      result_.simulated += judge->simulated();
    }
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(result_);
  }

 private:
  void count_meshes() {
    Space::Meshes meshes = space_.meshes();
    meshes_ = std::move(meshes.legal);
    std::vector<std::int64_t> legal(meshes_.size());
    parallel_for(meshes_.size(), [&](std::size_t, std::size_t mesh) { legal[mesh] = options(mesh).count(); });
    result_.legal = std::accumulate(legal.begin(), legal.end(), std::int64_t{0});
    result_.judged = meshes.refused;
    for (const mesh::MeshSizes& mesh : meshes_) {
      result_.judged += space_.count(mesh);
    }
    if (result_.legal == 0) {
      throw RequestError(nothing_legal(problem_, held_));
    }
  }

  MeshOptions options(std::size_t mesh) const { return space_.options(meshes_[mesh]); }

  /// Meshes that are judged together: alike but for how batch ranks are split into dp_shard and dp_replicate.
  void group_meshes() {
    std::map<std::array<std::int64_t, 5>, std::vector<std::size_t>> groups;  // neighbours share tables
    for (std::size_t mesh = 0; mesh < meshes_.size(); ++mesh) {
      const mesh::MeshSizes& m = meshes_[mesh];
      groups[{m.tp, m.cp, m.ep, m.etp, m.pp}].push_back(mesh);
    }
    for (auto& [sizes, meshes] : groups) {
      groups_.push_back(std::move(meshes));
    }
  }

  /// Groups of meshes with a bound that no candidate of theirs is below, ascending.
  template <typename Bound>
  struct Ranked {
    Bound bound;
    std::size_t group;
  };
  template <typename Bound, typename Ask>
  std::vector<Ranked<Bound>> ranked(Ask ask) {
    std::vector<Ranked<Bound>> groups(groups_.size());
    parallel_for(groups.size(), [&](std::size_t thread, std::size_t group) {
      groups[group] = {ask(*judges_[thread], groups_[group]), group};
    });
    std::stable_sort(groups.begin(), groups.end(),
                     [](const auto& a, const auto& b) { return a.bound < b.bound; });
    return groups;
  }

  /// Judges groups in the order of a bound until it is above `limit()`, which falls as plans are found.
  template <typename Bound, typename Limit, typename Find>
  void best_first(const std::vector<Ranked<Bound>>& groups, Limit limit, Find find) {
    for (std::size_t first = 0; first < groups.size(); first += together) {
      const Bound least = limit();
      std::size_t last = first;
      while (last < std::min(groups.size(), first + together) && groups[last].bound <= least) {
        ++last;
      }
      std::vector<std::vector<Plan>> found(last - first);
      parallel_for(found.size(), [&](std::size_t thread, std::size_t index) {
        found[index] = find(*judges_[thread], groups_[groups[first + index].group], least);
      });
      for (std::vector<Plan>& plans : found) {
        for (Plan& plan : plans) {
          add(std::move(plan));
        }
      }
      if (last < first + together) {
        return;
      }
    }
  }

  void find_fastest() {
    const auto limit = [&] {
      return result_.plans.size() < top_ ? std::numeric_limits<double>::max()
                                         : result_.plans.back().time.seconds;
    };
    const auto bound = [&](const MeshJudge& judge, const std::vector<std::size_t>& group) {
      return judge.least_seconds(options(group.front()));
    };
    best_first(ranked<double>(bound), limit,
               [&](MeshJudge& judge, const std::vector<std::size_t>& group, double least) {
                 std::vector<Plan> plans;
                 const std::vector<Choice> choices = judge.choices(options(group.front()), least);
                 for (const std::size_t mesh : group) {
                   if (std::optional<Plan> plan = judge.fastest(options(mesh), choices, least)) {
                     plans.push_back(std::move(*plan));
                   }
                 }
                 return plans;
               });
  }

  void find_leanest() {
    std::vector<mesh::MeshSizes> fitting;
    for (const Plan& plan : result_.plans) {
      fitting.push_back(plan.candidate.mesh);
    }
    const auto limit = [&] {
      return result_.plans.size() < top_ ? std::numeric_limits<std::int64_t>::max()
                                         : result_.plans.back().worst.reserved;
    };
    const auto bound = [&](const MeshJudge& judge, const std::vector<std::size_t>& group) {
      std::int64_t least = std::numeric_limits<std::int64_t>::max();
      for (const std::size_t mesh : group) {
        least = std::min(least, judge.least_bytes(options(mesh)));
      }
      return least;
    };
    best_first(ranked<std::int64_t>(bound), limit,
               [&](MeshJudge& judge, const std::vector<std::size_t>& group, std::int64_t least) {
                 std::vector<Plan> plans;
                 for (const std::size_t mesh : group) {
                   const bool fits =
                       std::find(fitting.begin(), fitting.end(), meshes_[mesh]) != fitting.end();
                   if (std::optional<Plan> plan = fits ? std::nullopt : judge.leanest(options(mesh), least)) {
                     plans.push_back(std::move(*plan));
                   }
                 }
                 return plans;
               });
  }

  void add(Plan plan) {
    const auto place = std::upper_bound(result_.plans.begin(), result_.plans.end(), plan, is_better);
    result_.plans.insert(place, std::move(plan));
    if (result_.plans.size() > top_) {
      result_.plans.pop_back();
    }
  }

  const Problem& problem_;
  const Held& held_;
  Space space_;
  std::size_t top_;
  std::vector<std::unique_ptr<MeshJudge>> judges_;  // by thread
  std::vector<mesh::MeshSizes> meshes_;
  std::vector<std::vector<std::size_t>> groups_;  // indices of meshes_
  SearchResult result_;
};

}  // namespace

SearchResult search(const Problem& problem, const Constants& constants, const Held& held, std::int64_t top) {
  Problems problems;
  problems.add_all(broken_by(problem, held));
  problems.raise();
  return Search(problem, constants, held, top).run();
}

}  // namespace ndmesh::plan
