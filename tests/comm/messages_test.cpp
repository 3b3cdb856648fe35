#include <thread>

#include "comm/support.h"

namespace ndmesh::comm {
namespace {

TEST(Messages, ArriveInOrder) {
  run(2, [](Communicator& c) {
    std::vector<Work> works;
    Group::Tensors tensors;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(c.rank() == 0 ? values(i, {i, 2}, at::kFloat) : at::empty({i, 2}, at::kFloat));
      works.push_back(c.rank() == 0 ? c.everyone().start_send(tensors.back(), 1, "activations")
                                    : c.everyone().start_recv(tensors.back(), 0, "activations"));
    }
    for (Work& work : works) {
      work.release();
    }
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(at::equal(tensors[static_cast<std::size_t>(i)], values(i, {i, 2}, at::kFloat)));
    }
  });
}

TEST(Messages, GoAroundARing) {
  run(5, [](Communicator& c) {
    const int right = static_cast<int>((c.rank() + 1) % 5), left = static_cast<int>((c.rank() + 4) % 5);
    at::Tensor held = values(c.rank(), {64}, at::kBFloat16);
    for (int step = 1; step <= 5; ++step) {
      const at::Tensor next = at::empty_like(held);
      Work send = c.everyone().start_send(held, right, "keys");
      c.everyone().recv(next, left, "keys");
      send.release();
      held = next;
      EXPECT_TRUE(at::equal(held, values((c.rank() + 5 - step) % 5, {64}, at::kBFloat16)));
    }
  });
}

TEST(Messages, AreNotOrderedAgainstCollectives) {
  run(2, [](Communicator& c) {
    const at::Tensor tensor = c.rank() == 0 ? at::ones({4}, at::kFloat) : at::zeros({4}, at::kFloat);
    if (c.rank() == 0) {
      c.everyone().barrier("before");
      c.everyone().send(tensor, 1, "late message");
    } else {
      Work recv = c.everyone().start_recv(tensor, 0, "late message");
      c.everyone().barrier("before");
      recv.wait();
      recv.release();
    }
    EXPECT_TRUE(at::equal(tensor, at::ones({4}, at::kFloat)));
  });
}

TEST(Messages, MayGoToOneself) {
  run(1, [](Communicator& c) {
    const at::Tensor out = at::zeros({3}, at::kFloat);
    Work send = c.everyone().start_send(at::ones({3}, at::kFloat), 0, "to myself");
    c.everyone().recv(out, 0, "from myself");
    send.release();
    EXPECT_TRUE(at::equal(out, at::ones({3}, at::kFloat)));
  });
}

TEST(Messages, OfAnotherSizeAreAMismatch) {
  const std::string message = message_of<RunError>([] {
    run(2, [](Communicator& c) {
      if (c.rank() == 0) {
        c.everyone().send(at::ones({4}, at::kFloat), 1, "activations of micro-batch 2");
      } else {
        c.everyone().recv(at::ones({3}, at::kFloat), 0, "activations of micro-batch 3");
      }
    });
  });
  EXPECT_THAT(message,
              testing::AllOf(testing::HasSubstr("mismatched"), testing::HasSubstr("Float [4] to rank 1"),
                             testing::HasSubstr("Float [3] from rank 0"), testing::HasSubstr("micro-batch 2"),
                             testing::HasSubstr("micro-batch 3")));
}

}  // namespace
}  // namespace ndmesh::comm
