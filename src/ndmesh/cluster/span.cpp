#include <algorithm>
#include <stdexcept>

#include "ndmesh/cluster/cluster.h"

namespace ndmesh::cluster {
namespace {

/// How the groups lie in the domains of one level.
struct Reach {
  std::int64_t members = 0;  ///< fewest in one domain
  std::int64_t domains = 0;  ///< most of one group
};

/// Ranks that an extent and everything finer covers.
std::int64_t block_of(const Extent& extent) {
  return extent.size * extent.stride;
}

/// Whether every extent lies whole inside a domain, is cut by domains into equal runs, or has each of its ranks in
/// another domain. Then all groups and all domains that they touch are alike.
bool is_regular(const std::vector<Extent>& extents, std::int64_t domain) {
  return std::all_of(extents.begin(), extents.end(), [domain](const Extent& extent) {
    const bool inside = domain % block_of(extent) == 0;
    const bool cut = domain % extent.stride == 0 && block_of(extent) % domain == 0;
    const bool apart = extent.stride % domain == 0;
    return inside || cut || apart;
  });
}

Reach regular_reach(const std::vector<Extent>& extents, std::int64_t domain) {
  Reach reach = {1, 1};
  for (const Extent& extent : extents) {
    const std::int64_t members =
        std::clamp<std::int64_t>((domain + extent.stride - 1) / extent.stride, 1, extent.size);
    reach.members *= members;
    reach.domains *= extent.size / members;
  }
  return reach;
}

/// Ranks of the group whose first is 0, ascending.
std::vector<std::int64_t> offsets_of(const std::vector<Extent>& extents) {
  std::vector<std::int64_t> offsets = {0};
  for (const Extent& extent : extents) {
    const std::size_t inner = offsets.size();
    for (std::int64_t i = 1; i < extent.size; ++i)
      for (std::size_t k = 0; k < inner; ++k) offsets.push_back(offsets[k] + i * extent.stride);
  }
  return offsets;
}

bool starts_group(const std::vector<Extent>& extents, std::int64_t rank) {
  return std::all_of(extents.begin(), extents.end(),
                     [&](const Extent& extent) { return rank / extent.stride % extent.size == 0; });
}

void add_group(Reach& reach, const std::vector<std::int64_t>& offsets, std::int64_t first,
               std::int64_t domain) {
  std::int64_t domains = 0;
  for (std::size_t i = 0; i < offsets.size(); ++domains) {
    const std::int64_t end = ((first + offsets[i]) / domain + 1) * domain - first;
    const auto next = static_cast<std::size_t>(
        std::lower_bound(offsets.begin() + static_cast<std::ptrdiff_t>(i), offsets.end(), end) -
        offsets.begin());
    const auto members = static_cast<std::int64_t>(next - i);
    reach.members = reach.members == 0 ? members : std::min(reach.members, members);
    i = next;
  }
  reach.domains = std::max(reach.domains, domains);
}

/// By looking at every group.
Reach enumerated_reach(const std::vector<Extent>& extents, std::int64_t domain, std::int64_t world) {
  const std::vector<std::int64_t> offsets = offsets_of(extents);
  Reach reach;
  for (std::int64_t rank = 0; rank + offsets.back() < world; ++rank)
    if (starts_group(extents, rank)) add_group(reach, offsets, rank, domain);
  return reach;
}

/// The outermost level's domain holds whatever fits.
Reach reach_of(const std::vector<Extent>& extents, std::int64_t domain, std::int64_t world) {
  if (domain >= world || is_regular(extents, domain)) return regular_reach(extents, domain);
  return enumerated_reach(extents, domain, world);
}

/// Extents of more than one rank, ascending; they must be those of a mesh, and the group of rank 0 must fit.
std::vector<Extent> checked(std::vector<Extent> extents, std::int64_t world) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.stride < b.stride; });
  std::int64_t inner = 1;
  std::int64_t last = 0;  // of rank 0's group
  std::vector<Extent> result;
  for (const Extent& extent : extents) {
    if (extent.size == 1) continue;
    const bool nests = extent.size > 0 && extent.stride >= inner && extent.stride % inner == 0;
    if (!nests || extent.size - 1 > (world - 1 - last) / extent.stride) {
      throw std::invalid_argument("extents of a group do not nest or do not fit the cluster");
    }
    last += (extent.size - 1) * extent.stride;
    inner = block_of(extent);
    result.push_back(extent);
  }
  return result;
}

}  // namespace

Span span_of(const Cluster& cluster, const std::vector<Extent>& extents) {
  const std::vector<Extent> used = checked(extents, cluster.devices());
  Span span;
  for (const Extent& extent : used) span.ranks *= extent.size;
  for (const Level& level : cluster.levels) {
    const Reach reach = reach_of(used, level.devices, cluster.devices());
    span.members.push_back(reach.members);
    span.domains.push_back(reach.domains);
    if (reach.domains > 1) ++span.level;
  }
  return span;
}

}  // namespace ndmesh::cluster
