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

/// Meshes that are judged together: the limit stays as it is among them, so that the result does not depend
/// on how many threads there are.
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

  /// Meshes by a bound that no candidate of theirs is below, ascending.
  template <typename Bound>
  struct Ranked {
    Bound bound;
    std::size_t mesh;
  };
  template <typename Bound>
  std::vector<Ranked<Bound>> ranked(Bound (MeshJudge::*bound)(const MeshOptions&) const) {
    std::vector<Ranked<Bound>> meshes(meshes_.size());
    parallel_for(meshes.size(), [&](std::size_t thread, std::size_t mesh) {
      meshes[mesh] = {((*judges_[thread]).*bound)(options(mesh)), mesh};
    });
    std::stable_sort(meshes.begin(), meshes.end(),
                     [](const auto& a, const auto& b) { return a.bound < b.bound; });
    return meshes;
  }

  /// Judges meshes in the order of a bound until it is above `limit()`, which falls as plans are found.
  template <typename Bound, typename Limit, typename Find>
  void best_first(const std::vector<Ranked<Bound>>& meshes, Limit limit, Find find) {
    for (std::size_t first = 0; first < meshes.size(); first += together) {
      const Bound least = limit();
      std::size_t last = first;
      while (last < std::min(meshes.size(), first + together) && meshes[last].bound <= least) {
        ++last;
      }
      std::vector<std::optional<Plan>> found(last - first);
      parallel_for(found.size(), [&](std::size_t thread, std::size_t index) {
        found[index] = find(*judges_[thread], options(meshes[first + index].mesh), least);
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
    best_first(ranked(&MeshJudge::least_seconds), limit,
               [](MeshJudge& judge, const MeshOptions& of_mesh, double least) {
                 return judge.fastest(of_mesh, least);
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
    best_first(ranked(&MeshJudge::least_bytes), limit,
               [&](MeshJudge& judge, const MeshOptions& of_mesh, std::int64_t least) {
                 const bool fits = std::find(fitting.begin(), fitting.end(), of_mesh.mesh) != fitting.end();
                 return fits ? std::nullopt : judge.leanest(of_mesh, least);
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
