#include "ndmesh/plan/search.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>

#include "ndmesh/base/error.h"
#include "ndmesh/plan/mesh_judge.h"
#include "ndmesh/plan/parallel.h"

namespace ndmesh::plan {
namespace {

/// Meshes that are judged together: the limit stays as it is among them, so that the result does not depend on how
/// many threads there are.
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
    bound_meshes();
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
  void bound_meshes() {
    Space::Meshes meshes = space_.meshes();
    meshes_ = std::move(meshes.legal);
    bounds_.resize(meshes_.size());
    parallel_for(meshes_.size(), [&](std::size_t thread, std::size_t index) {
      bounds_[index] = judges_[thread]->bounds(space_.options(meshes_[index]));
    });
    result_.judged = meshes.refused;
    for (std::size_t index = 0; index < meshes_.size(); ++index) {
      result_.judged += space_.count(meshes_[index]);
      result_.legal += bounds_[index].legal;
    }
    if (result_.legal == 0) {
      throw RequestError(nothing_legal(problem_, held_));
    }
  }

  /// Indices of meshes, by a bound, ascending.
  template <typename Bound>
  std::vector<std::size_t> ranked(Bound MeshBounds::*bound) const {
    std::vector<std::size_t> order(meshes_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return bounds_[a].*bound < bounds_[b].*bound; });
    return order;
  }

  /// Judges meshes in the order of a bound until it is above `limit()`, which falls as plans are found.
  template <typename Bound, typename Limit, typename Find>
  void best_first(Bound MeshBounds::*bound, Limit limit, Find find) {
    const std::vector<std::size_t> order = ranked(bound);
    for (std::size_t first = 0; first < order.size(); first += together) {
      const Bound least = limit();
      std::size_t last = first;
      while (last < std::min(order.size(), first + together) && bounds_[order[last]].*bound <= least) {
        ++last;
      }
      std::vector<std::optional<Plan>> found(last - first);
      parallel_for(found.size(), [&](std::size_t thread, std::size_t index) {
        found[index] = find(*judges_[thread], order[first + index], least);
      });
      for (std::optional<Plan>& plan : found) {
        add(std::move(plan));
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
    best_first(&MeshBounds::seconds, limit, [&](MeshJudge& judge, std::size_t mesh, double least) {
      return judge.fastest(space_.options(meshes_[mesh]), least);
    });
  }

  void find_leanest() {
    const std::size_t fitting = result_.plans.size();
    const auto limit = [&] {
      return result_.plans.size() < top_ ? std::numeric_limits<std::int64_t>::max()
                                         : result_.plans.back().worst.reserved;
    };
    best_first(&MeshBounds::bytes, limit, [&](MeshJudge& judge, std::size_t mesh, std::int64_t least) {
      const bool has_plan =
          std::any_of(result_.plans.begin(), result_.plans.begin() + static_cast<std::ptrdiff_t>(fitting),
                      [&](const Plan& plan) { return plan.candidate.mesh == meshes_[mesh]; });
      return has_plan ? std::nullopt : judge.leanest(space_.options(meshes_[mesh]), least);
    });
  }

  void add(std::optional<Plan> plan) {
    if (!plan) {
      return;
    }
    const auto place = std::upper_bound(result_.plans.begin(), result_.plans.end(), *plan, is_better);
    result_.plans.insert(place, std::move(*plan));
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
  std::vector<MeshBounds> bounds_;  // by mesh
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
