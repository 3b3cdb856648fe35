#include <gtest/gtest.h>

#include "ndmesh/base/error.h"
#include "ndmesh/schedule/schedule.h"

namespace ndmesh::schedule {
namespace {

TEST(Names, KindsAreNamedAsInJobs) {
  for (const Kind kind : {Kind::gpipe, Kind::one_f_one_b, Kind::interleaved, Kind::zb_h1, Kind::zb_v}) {
    EXPECT_EQ(kind_from_name(name_of(kind)), kind);
  }
  EXPECT_EQ(name_of(Kind::one_f_one_b), "1f1b");
  EXPECT_THROW(kind_from_name("1f2b"), RequestError);
}

}  // namespace
}  // namespace ndmesh::schedule
