#include <gmock/gmock.h>

#include "ndmesh/base/error.h"
#include "ndmesh/mesh/mesh.h"

namespace ndmesh::mesh {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> problems_of(const std::string& text) {
  try {
    parse_mesh(text);
  } catch (const RequestError& error) {
    return error.problems();
  }
  return {};
}

std::vector<std::string> order_problems(const std::vector<std::string>& names) {
  try {
    parse_order(names);
  } catch (const RequestError& error) {
    return error.problems();
  }
  return {};
}

TEST(Notation, ReadsAndWritesMeshes) {
  EXPECT_EQ(parse_mesh("1"), MeshSizes{});
  EXPECT_EQ(MeshSizes{}.name(), "1");
  MeshSizes sizes{.tp = 2, .cp = 3, .dp_shard = 4, .dp_replicate = 5, .pp = 6};
  sizes.ep = 8;
  sizes.etp = 2;
  EXPECT_EQ(sizes.name(), "pp=6,dp_replicate=5,dp_shard=4,cp=3,tp=2,ep=8,etp=2");
  EXPECT_EQ(parse_mesh(sizes.name()), sizes);
  EXPECT_EQ(parse_mesh("tp=2,dp_shard=2").name(), "dp_shard=2,tp=2");
}

TEST(Notation, RefusesEverythingWrongAtOnce) {
  const std::vector<std::string> problems = problems_of("dp_shrad=2,tp=0,cp=2,cp=3,pp=x,ep");
  ASSERT_EQ(problems.size(), 5u);
  EXPECT_THAT(problems[0], AllOf(HasSubstr("\"dp_shrad\""), HasSubstr("did you mean dp_shard?")));
  EXPECT_THAT(problems[1], AllOf(HasSubstr("tp"), HasSubstr("\"0\"")));
  EXPECT_THAT(problems[2], HasSubstr("cp is given twice"));
  EXPECT_THAT(problems[3], HasSubstr("\"x\""));
  EXPECT_THAT(problems[4], HasSubstr("write ep=N"));
}

TEST(Notation, RefusesMalformedText) {
  for (const char* text :
       {"", ",", "tp=2,", "2", "tp==2", "tp=2.5", "tp=-1", "tp=99999999999999999999", "tp = 2"}) {
    EXPECT_FALSE(problems_of(text).empty()) << text;
  }
}

TEST(Notation, OrderNamesEveryAxisOnce) {
  EXPECT_EQ(parse_order({"pp", "tp", "cp", "dp_shard", "dp_replicate"})[0], Axis::pp);
  EXPECT_EQ(order_problems({"tp", "cp", "dp_shard", "pp"}),
            std::vector<std::string>{"mesh.order: dp_replicate is missing; every axis must be named once"});
  const std::vector<std::string> problems =
      order_problems({"tp", "tp", "ep", "cp", "dp_shard", "pp", "dp_replicate"});
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_THAT(problems[0], HasSubstr("tp is named twice"));
  EXPECT_THAT(problems[1], AllOf(HasSubstr("\"ep\""), HasSubstr("the axes are tp, cp, dp_shard")));
}

TEST(Notation, AxisSetsNameThemselves) {
  EXPECT_EQ(AxisSet{}.name(), "none");
  EXPECT_EQ((AxisSet{Axis::dp_shard, Axis::cp}).name(), "cp+dp_shard");
  EXPECT_EQ((loss_axes & shard_axes), shard_axes);
  EXPECT_EQ((batch_axes | AxisSet{Axis::cp}), loss_axes);
}

}  // namespace
}  // namespace ndmesh::mesh
