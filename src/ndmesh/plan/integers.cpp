#include "ndmesh/plan/integers.h"

namespace ndmesh::plan {

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> small;
  std::vector<std::int64_t> large;
  for (std::int64_t d = 1; d <= number / d; ++d) {
    if (number % d == 0) {
      small.push_back(d);
      if (d != number / d) {
        large.push_back(number / d);
      }
    }
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

}  // namespace ndmesh::plan
