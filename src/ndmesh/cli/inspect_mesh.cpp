#include "ndmesh/cli/inspect_mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"
#include "ndmesh/mesh/rules.h"

namespace ndmesh::cli {
namespace {

using Json = nlohmann::ordered_json;
using mesh::Axis;
using mesh::ExpertAxis;
using mesh::Mesh;
using Groups = std::vector<std::vector<std::int64_t>>;

/// Most ranks that are listed.
constexpr std::int64_t max_listed = 65'536;

// What text shows of a large mesh.
constexpr std::int64_t shown_ranks = 64;
constexpr std::size_t shown_members = 8;
constexpr std::size_t shown_width = 70;  // characters of groups in a line, about

// Axes as the two products are written: the slowest first.
constexpr Axis dense_view[] = {Axis::pp, Axis::dp_replicate, Axis::dp_shard, Axis::cp, Axis::tp};
constexpr ExpertAxis expert_view[] = {ExpertAxis::edp, ExpertAxis::ep, ExpertAxis::etp};

struct AxesOfName {
  std::string_view name;
  mesh::AxisSet axes;
};
constexpr AxesOfName rank_sets[] = {
    {"batch", mesh::batch_axes}, {"shard", mesh::shard_axes}, {"loss", mesh::loss_axes}};

/// The groups that are shown, by name.
std::vector<std::pair<std::string, Groups>> all_groups(const Mesh& mesh) {
  std::vector<std::pair<std::string, Groups>> result;
  for (const Axis axis : mesh::all_axes) result.emplace_back(name_of(axis), mesh.groups(mesh::AxisSet{axis}));
  for (const AxesOfName& set : rank_sets) result.emplace_back(set.name, mesh.groups(set.axes));
  for (const ExpertAxis axis : mesh::all_expert_axes) result.emplace_back(name_of(axis), mesh.groups(axis));
  return result;
}

Json rank_json(const Mesh& mesh, std::int64_t rank) {
  Json json = {{"rank", rank}};
  for (const Axis axis : mesh::all_axes) json[std::string(name_of(axis))] = mesh.coordinate(rank, axis);
  for (const ExpertAxis axis : mesh::all_expert_axes)
    json[std::string(name_of(axis))] = mesh.coordinate(rank, axis);
  return json;
}

Json views_json(const Mesh& mesh) {
  Json dense = Json::object();
  for (const Axis axis : dense_view) dense[std::string(name_of(axis))] = mesh.size(axis);
  Json expert = {{"pp", mesh.size(Axis::pp)}};
  for (const ExpertAxis axis : expert_view) expert[std::string(name_of(axis))] = mesh.size(axis);
  return {{"dense_view", dense}, {"expert_view", expert}};
}

Json mesh_json(const Mesh& mesh, const std::vector<std::string>& notes) {
  Json json = {{"mesh", mesh.sizes().name()}, {"world", mesh.world()}};
  json["order"] = Json::array();
  for (const Axis axis : mesh.order()) json["order"].push_back(name_of(axis));
  json.update(views_json(mesh));
  for (const AxesOfName& set : rank_sets) json[fmt::format("{}_ranks", set.name)] = mesh.size(set.axes);
  json["ranks"] = Json::array();
  for (std::int64_t rank = 0; rank < mesh.world(); ++rank) json["ranks"].push_back(rank_json(mesh, rank));
  json["groups"] = Json::object();
  for (const auto& [name, groups] : all_groups(mesh)) json["groups"][name] = groups;
  json["notes"] = notes;
  return json;
}

void print_views(const Mesh& mesh) {
  fmt::print("mesh {}: {} ranks\n", mesh.sizes().name(), mesh.world());
  std::vector<std::string_view> order;
  for (const Axis axis : mesh.order()) order.push_back(name_of(axis));
  fmt::print("order         {} (fastest first)\n", fmt::join(order, ", "));

  std::vector<std::string> dense;
  for (const Axis axis : dense_view) dense.push_back(fmt::format("{} {}", name_of(axis), mesh.size(axis)));
  fmt::print("dense view    {} = {}\n", mesh.world(), fmt::join(dense, " x "));
  std::vector<std::string> expert = {fmt::format("pp {}", mesh.size(Axis::pp))};
  for (const ExpertAxis axis : expert_view)
    expert.push_back(fmt::format("{} {}", name_of(axis), mesh.size(axis)));
  fmt::print("expert view   {} = {}\n", mesh.world(), fmt::join(expert, " x "));
  for (const AxesOfName& set : rank_sets) {
    fmt::print("{:<5} ranks   {} = {}\n", set.name, mesh.size(set.axes), set.axes.name());
  }
}

void print_ranks(const Mesh& mesh) {
  fmt::print("\n{:>7}", "rank");
  for (const Axis axis : mesh::all_axes) fmt::print("{:>14}", name_of(axis));
  for (const ExpertAxis axis : mesh::all_expert_axes) fmt::print("{:>6}", name_of(axis));
  fmt::print("\n");
  for (std::int64_t rank = 0; rank < std::min(mesh.world(), shown_ranks); ++rank) {
    fmt::print("{:>7}", rank);
    for (const Axis axis : mesh::all_axes) fmt::print("{:>14}", mesh.coordinate(rank, axis));
    for (const ExpertAxis axis : mesh::all_expert_axes) fmt::print("{:>6}", mesh.coordinate(rank, axis));
    fmt::print("\n");
  }
  if (mesh.world() > shown_ranks)
    fmt::print("    ... {} more ranks (--json has all)\n", mesh.world() - shown_ranks);
}

std::string group_text(const std::vector<std::int64_t>& members) {
  if (members.size() <= shown_members) return fmt::format("{{{}}}", fmt::join(members, " "));
  const std::vector<std::int64_t> first(members.begin(), members.begin() + shown_members - 1);
  return fmt::format("{{{} ... {}}}", fmt::join(first, " "), members.back());
}

void print_groups(const Mesh& mesh) {
  fmt::print("\n{:<14}{:>8}{:>8}  members\n", "groups over", "number", "ranks");
  for (const auto& [name, groups] : all_groups(mesh)) {
    fmt::print("{:<14}{:>8}{:>8} ", name, groups.size(), groups.front().size());
    std::string members;
    std::size_t shown = 0;
    while (shown < groups.size() && members.size() < shown_width)
      members += fmt::format(" {}", group_text(groups[shown++]));
    fmt::print("{}{}\n", members, shown < groups.size() ? " ..." : "");
  }
}

}  // namespace

void print_mesh(const Mesh& mesh, const model::ModelSpec* model, bool json) {
  if (mesh.world() > max_listed) {
    throw RequestError(fmt::format("mesh {}: {} ranks are too many to list; at most {}", mesh.sizes().name(),
                                   mesh.world(), max_listed));
  }
  std::vector<std::string> notes;
  if (model != nullptr) {
    const mesh::RuleInput input = mesh::rule_input(*model, mesh.sizes());
    Problems problems;
    problems.add_all(mesh::broken_rules(input));
    problems.raise();
    notes = mesh::rule_notes(input);
  }
  if (json) {
    fmt::print("{}\n", mesh_json(mesh, notes).dump(2));
    return;
  }
  print_views(mesh);
  print_ranks(mesh);
  print_groups(mesh);
  if (!notes.empty()) fmt::print("\n{}\n", fmt::join(notes, "\n"));
}

}  // namespace ndmesh::cli
