#include <gmock/gmock.h>

#include <filesystem>

#include "ndmesh/base/file.h"
#include "ndmesh/plan/search/answer.h"

namespace ndmesh::plan {
namespace {

TEST(Docs, ListEveryWarningWithItsCondition) {
  const std::string page =
      read_file(std::filesystem::path(NDMESH_TEST_DATA) / ".." / ".." / "docs" / "planning.md", 1 << 20);
  for (const WarningKind& kind : all_warnings()) {
    EXPECT_THAT(page, testing::HasSubstr("| " + kind.name + " | " + kind.condition + " |"));
  }
}

}  // namespace
}  // namespace ndmesh::plan
