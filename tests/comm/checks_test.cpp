#include "comm/support.h"

namespace ndmesh::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// What member 1 of 2 is told when it makes a wrong call.
std::string refusal(const std::function<void(Group&)>& call) {
  return message_of<RunError>([&] {
    run(2, [&](Communicator& c) {
      if (c.rank() == 1) {
        call(c.everyone());
      }
    });
  });
}

const at::TensorOptions f32 = at::TensorOptions(at::kFloat);

TEST(CallCheck, NamesTheCall) {
  EXPECT_THAT(
      refusal([](Group& g) { g.broadcast({at::ones({1})}, 2, "initial values"); }),
      HasSubstr(
          "broadcast \"initial values\" of group everyone:\n  the root is member 2; allowed are 0 to 1"));
}

TEST(CallCheck, TensorsAreDefinedContiguousAndOnTheCpu) {
  EXPECT_THAT(refusal([](Group& g) {
                g.all_reduce({at::Tensor(), at::ones({2, 3}).t()}, Reduction::sum, "");
              }),
              AllOf(HasSubstr("outputs[0] is an undefined tensor"),
                    HasSubstr("outputs[1], [3, 2], is not contiguous")));
  EXPECT_THAT(
      refusal([](Group& g) { g.all_reduce({at::empty({2}, f32.device(at::kMeta))}, Reduction::sum, ""); }),
      AllOf(HasSubstr("device meta"), HasSubstr("run.transport threads takes cpu only")));
}

TEST(CallCheck, ReductionsTakeNumbersOfKnownFormats) {
  EXPECT_THAT(
      refusal([](Group& g) { g.all_reduce({at::ones({2}, at::kInt)}, Reduction::sum, ""); }),
      AllOf(HasSubstr("outputs[0] is Int, which cannot be reduced"), HasSubstr("allowed are Double, Float")));
  EXPECT_THAT(refusal([](Group& g) {
                g.reduce_scatter({at::ones({1}, at::kBool)}, {at::ones({2}, at::kBool)}, false, "");
              }),
              HasSubstr("inputs[0] is Bool, which cannot be reduced"));
}

TEST(CallCheck, RowsAreThoseOfTheSplit) {
  EXPECT_THAT(
      refusal([](Group& g) {
        g.all_gather({at::ones({5, 2})}, {at::ones({3, 2})}, "");
      }),
      HasSubstr(
          "inputs[0] is [3, 2]; the rows of outputs[0] ([5, 2]) that belong to member 1 of 2 are [2, 2]"));
  EXPECT_THAT(
      refusal([](Group& g) {
        g.reduce_scatter({at::ones({2, 3})}, {at::ones({5, 2})}, false, "");
      }),
      HasSubstr(
          "outputs[0] is [2, 3]; the rows of inputs[0] ([5, 2]) that belong to member 1 of 2 are [2, 2]"));
  EXPECT_THAT(refusal([](Group& g) { g.all_gather({at::ones({})}, {at::ones({})}, ""); }),
              HasSubstr("outputs[0] is a scalar, which has no rows"));
  EXPECT_THAT(refusal([](Group& g) {
                g.all_gather({at::ones({2}), at::ones({2})}, {at::ones({1})}, "");
              }),
              HasSubstr("there are 2 outputs and 1 inputs"));
}

TEST(CallCheck, DtypesChangeOnlyWhereRoundingIsMeant) {
  EXPECT_THAT(refusal([](Group& g) {
                g.reduce_scatter({at::ones({1}, at::kBFloat16)}, {at::ones({2}, at::kFloat)}, false, "");
              }),
              HasSubstr("outputs[0] is BFloat16 and inputs[0] is Float; allowed is the same dtype or a wider "
                        "floating one"));
  EXPECT_THAT(
      refusal([](Group& g) { g.all_gather({at::ones({2}, at::kLong)}, {at::ones({1}, at::kFloat)}, ""); }),
      HasSubstr(
          "outputs[0] is Long and inputs[0] is Float; allowed is the same dtype or another floating one"));
}

TEST(CallCheck, AllToAllHasOneTensorForEachRank) {
  EXPECT_THAT(
      refusal([](Group& g) {
        g.all_to_all({at::ones({2})}, {at::ones({2}), at::ones({2}), at::ones({2})}, "");
      }),
      AllOf(HasSubstr("there are 1 outputs; the group has 2 ranks"), HasSubstr("there are 3 inputs")));
}

TEST(CallCheck, AllToAllWritesNoInput) {
  const at::Tensor both = at::ones({4});
  EXPECT_THAT(
      refusal([&](Group& g) {
        g.all_to_all({both.narrow(0, 0, 2), at::ones({2})}, {at::ones({2}), both.narrow(0, 1, 2)}, "");
      }),
      HasSubstr("outputs[0] and inputs[1] share memory; give outputs of their own"));
  run(2, [](Communicator& c) {  // beside one another in one tensor they do not touch
    const at::Tensor one = at::full({4}, static_cast<double>(c.rank()));
    c.everyone().all_to_all({one.narrow(0, 0, 1), one.narrow(0, 1, 1)},
                            {one.narrow(0, 2, 1), one.narrow(0, 3, 1)}, "halves");
    EXPECT_EQ(one[0].item<double>(), 0);
    EXPECT_EQ(one[1].item<double>(), 1);
  });
}

TEST(CallCheck, PeersAreMembers) {
  EXPECT_THAT(refusal([](Group& g) { g.send(at::ones({2}), -1, ""); }),
              HasSubstr("the destination is member -1"));
  EXPECT_THAT(refusal([](Group& g) { g.recv(at::ones({2}), 7, ""); }),
              HasSubstr("the source is member 7; allowed are 0 to 1"));
}

}  // namespace
}  // namespace ndmesh::comm
