#include "ndmesh/nn/parameter.h"

#include "nn/support.h"

namespace ndmesh::nn {
namespace {

using namespace test;

TEST(Parameter, HasAShapeButNoMemoryAndCannotBeRead) {
  const at::Tensor weight = unmaterialised({3, 4}, at::kBFloat16);
  EXPECT_EQ(weight.sizes(), (at::IntArrayRef{3, 4}));
  EXPECT_EQ(weight.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(weight.requires_grad() && weight.is_leaf());
  EXPECT_FALSE(has_memory(weight));
  try {
    const at::Tensor sum = weight + 1;
    FAIL() << "it could be read";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("has no memory yet: lay the module out"));
  }
}

TEST(Parameter, TakesAndDropsMemoryWithItsViews) {
  const at::Tensor weight = unmaterialised({3, 4}, at::kDouble);
  const at::Tensor view = weight.detach().t();
  take_memory(weight);
  EXPECT_TRUE(has_memory(weight));
  weight.detach().fill_(2);
  EXPECT_EQ(view.sum().item<double>(), 24);
  drop_memory(weight, "not gathered");
  EXPECT_FALSE(has_memory(view));
  EXPECT_EQ(weight.storage().nbytes(), 96U);
  EXPECT_ANY_THROW(view.sum());
}

TEST(Parameter, IsPlacedInAFlatStorageAsTheSameObject) {
  const at::Tensor weight = unmaterialised({2, 3}, at::kDouble);
  const at::Tensor holder = weight;
  const at::Tensor flat = at::arange(10, at::kDouble);
  place(weight, flat, 4);
  EXPECT_TRUE(holder.detach().equal(at::arange(4, 10, at::kDouble).view({2, 3})));
  holder.sum().backward();
  EXPECT_TRUE(weight.grad().equal(at::ones({2, 3}, at::kDouble)));
  flat.fill_(1);
  EXPECT_EQ(holder.sum().item<double>(), 6);
}

TEST(Parameter, IsNotPlacedOutsideOrInAnotherDtype) {
  const at::Tensor weight = unmaterialised({2, 3}, at::kDouble);
  EXPECT_ANY_THROW(place(weight, at::zeros({8}, at::kDouble), 3));
  EXPECT_ANY_THROW(place(weight, at::zeros({8}, at::kFloat), 0));
}

TEST(Parameter, OfNoElementsHasAllTheMemoryItNeeds) {
  EXPECT_TRUE(has_memory(unmaterialised({0, 3}, at::kFloat)));
}

}  // namespace
}  // namespace ndmesh::nn
