#include <atomic>
#include <chrono>
#include <thread>

#include "comm/support.h"

namespace ndmesh::comm {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

void sum(Communicator& c, std::int64_t count, const std::string& label) {
  c.everyone().all_reduce({at::ones({count}, at::kFloat)}, Reduction::sum, label);
}

TEST(Verdict, MismatchOfSizesNamesRanksAndBothCalls) {
  const std::string message = message_of<RunError>(
      [] { run(4, [](Communicator& c) { sum(c, c.rank() == 3 ? 200 : 100, "gradients"); }); });
  EXPECT_THAT(message, AllOf(HasSubstr("mismatched"), HasSubstr("rank 3"), HasSubstr("sum of Float [100]"),
                             HasSubstr("sum of Float [200]"), HasSubstr("all_reduce 1 of group everyone"),
                             HasSubstr("\"gradients\"")));
}

TEST(Verdict, MismatchOfOperationsNamesBoth) {
  const std::string message = message_of<RunError>([] {
    run(2, [](Communicator& c) {
      sum(c, 4, "first");
      if (c.rank() == 0) {
        sum(c, 4, "loss");
      } else {
        c.everyone().all_gather({at::ones({4}, at::kFloat)}, {at::ones({2}, at::kFloat)}, "parameters");
      }
    });
  });
  EXPECT_THAT(message,
              AllOf(HasSubstr("mismatched"), HasSubstr("rank 0: all_reduce 2"),
                    HasSubstr("rank 1: all_gather 2"), HasSubstr("\"loss\""), HasSubstr("\"parameters\"")));
}

TEST(Verdict, MismatchOfAnyPartOfTheContract) {
  const at::Tensor f = at::ones({4}, at::kFloat), d = at::ones({4}, at::kDouble),
                   h = at::ones({4}, at::kBFloat16);
  const at::Tensor rows = at::ones({2}, at::kFloat);
  using Body = std::function<void(Group&, bool)>;
  const std::vector<std::pair<std::string, Body>> cases = {
      {"dtype", [&](Group& g, bool odd) { g.all_reduce({odd ? d : f}, Reduction::sum, ""); }},
      {"reduction",
       [&](Group& g, bool odd) { g.all_reduce({f}, odd ? Reduction::max : Reduction::sum, ""); }},
      {"count",
       [&](Group& g, bool odd) {
         g.all_reduce(odd ? Tensors{f, f} : Tensors{f}, Reduction::sum, "");
       }},
      {"root", [&](Group& g, bool odd) { g.broadcast({f.clone()}, odd ? 1 : 0, ""); }},
      {"shape",
       [&](Group& g, bool odd) {
         g.broadcast({odd ? f.reshape({2, 2}) : f}, 0, "");
       }},
      {"output", [&](Group& g, bool odd) { g.all_gather({odd ? h : f}, {rows}, ""); }},
      {"input", [&](Group& g, bool odd) { g.reduce_scatter({rows}, {odd ? h : f}, false, ""); }},
      {"barrier", [&](Group& g, bool odd) { odd ? g.barrier("") : g.all_reduce({f}, Reduction::sum, ""); }},
      {"pair",
       [&](Group& g, bool odd) {
         g.all_to_all({f.clone(), f.clone()}, odd ? Tensors{f, f} : Tensors{f, rows}, "");
       }},
  };
  for (const auto& [name, body] : cases) {
    EXPECT_THAT(message_of<RunError>([&, &call = body] {
                  run(2, [&](Communicator& c) { call(c.everyone(), c.rank() == 1); });
                }),
                AllOf(HasSubstr("mismatched"), HasSubstr("rank 0"), HasSubstr("rank 1")))
        << name;
  }
}

TEST(Verdict, EveryRankGetsItAndKeepsGettingIt) {
  std::atomic<int> seen{0};
  EXPECT_THROW(run(3,
                   [&](Communicator& c) {
                     for (int call = 0; call < 2; ++call) {
                       try {
                         sum(c, c.rank() + 1, "uneven");
                       } catch (const RunError& error) {
                         EXPECT_THAT(error.what(), HasSubstr("mismatched"));
                         ++seen;
                       }
                     }
                   }),
               RunError);
  EXPECT_EQ(seen, 6);
}

struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(Verdict, ThrowingRankEndsAllAndItsOwnExceptionComesOut) {
  std::atomic<int> woken{0};
  const auto begin = std::chrono::steady_clock::now();
  const std::string message = message_of<OutOfMemory>([&] {
    run(4, [&](Communicator& c) {
      c.enter_phase(Phase::step, "step 3");
      if (c.rank() == 2) {
        std::this_thread::sleep_for(milliseconds(50));
        throw OutOfMemory("no memory for 12 GiB");
      }
      try {
        sum(c, 4, "gradients");
      } catch (const RunError& error) {
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr("dead: rank 2 was in step 3"), HasSubstr("no memory for 12 GiB")));
        ++woken;
        throw;
      }
    });
  });
  EXPECT_EQ(message, "no memory for 12 GiB");
  EXPECT_EQ(woken, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(5000));
}

TEST(Verdict, ReturnedRankIsDeadForThoseWhoWait) {
  const std::string message = message_of<RunError>([] {
    run(3, [](Communicator& c) {
      sum(c, 4, "step 1");
      if (c.rank() != 1) {
        sum(c, 4, "step 2");
      }
    });
  });
  EXPECT_THAT(message, AllOf(HasSubstr("dead: rank 1 returned while rank"), HasSubstr("\"step 2\""),
                             HasSubstr("had last called all_reduce 1"), HasSubstr("\"step 1\"")));
}

TEST(Verdict, BothReceivingFirstAreStuck) {
  const std::string message = message_of<RunError>([] {
    run(2, [](Communicator& c) {
      const at::Tensor tensor = at::ones({2}, at::kFloat);
      const int peer = 1 - static_cast<int>(c.rank());
      c.everyone().recv(tensor, peer, "activations");
      c.everyone().send(tensor, peer, "activations");
    });
  });
  EXPECT_THAT(message,
              AllOf(HasSubstr("stuck"), HasSubstr("rank 0 waits in recv 1 of group everyone"),
                    HasSubstr("for rank 1"), HasSubstr("rank 1 waits in recv 1"), HasSubstr("for rank 0")));
}

TEST(Verdict, CrossedGroupsAreStuck) {
  using mesh::Axis;
  const std::string message = message_of<RunError>([] {
    run_ranks(mesh::Mesh({.tp = 2, .dp_shard = 2}), {}, [](Communicator& c) {
      // Ranks 0 and 3 begin with tp, 1 and 2 with dp_shard: nobody meets anybody.
      const bool tp_first = c.rank() == 0 || c.rank() == 3;
      c.group({tp_first ? Axis::tp : Axis::dp_shard}).barrier("first");
      c.group({tp_first ? Axis::dp_shard : Axis::tp}).barrier("second");
    });
  });
  EXPECT_THAT(message, AllOf(HasSubstr("stuck"), HasSubstr("barrier 1 of group tp"),
                             HasSubstr("barrier 1 of group dp_shard"), HasSubstr("rank 3 waits")));
}

TEST(Verdict, LateRankIsNamedWithItsPhaseAndKey) {
  Limits limits;
  limits.step = milliseconds(300);
  std::atomic<int> verdicts{0};
  const std::string message = message_of<RunError>([&] {
    run(
        3,
        [&](Communicator& c) {
          c.enter_phase(Phase::step, "step 12");
          sum(c, 4, "warm-up");
          while (c.rank() == 1 && verdicts < 2) {  // as in a long data load: it notices at its next call
            std::this_thread::sleep_for(milliseconds(5));
          }
          EXPECT_THROW(sum(c, 4, "gradients"), RunError);
          ++verdicts;
        },
        limits);
  });
  EXPECT_THAT(message, AllOf(HasSubstr("late: rank 1 did not arrive within 0.3 s"),
                             HasSubstr("run.step_limit"), HasSubstr("rank 1 was in step 12"),
                             HasSubstr("\"warm-up\""), HasSubstr("\"gradients\"")));
}

TEST(Verdict, LateNamesTheRankAtTheEndOfTheChain) {
  Limits limits;
  limits.setup = milliseconds(400);
  std::atomic<int> verdicts{0};
  const std::string message = message_of<RunError>([&] {
    run(
        3,
        [&](Communicator& c) {
          const at::Tensor tensor = at::ones({2}, at::kFloat);
          while (c.rank() == 2 && verdicts < 2) {
            std::this_thread::sleep_for(milliseconds(5));
          }
          if (c.rank() < 2) {
            EXPECT_THROW(c.everyone().recv(tensor, static_cast<int>(c.rank()) + 1, "activations"), RunError);
            ++verdicts;
          }
        },
        limits);
  });
  EXPECT_THAT(message, HasSubstr("late: rank 2 did not arrive"));
}

TEST(Verdict, WithinTheLimitOfItsPhaseIsNotLate) {
  Limits limits;
  limits.step = milliseconds(50);
  run(
      2,
      [](Communicator& c) {
        c.enter_phase(Phase::save, "saving");
        if (c.rank() == 1) {
          std::this_thread::sleep_for(milliseconds(200));
        }
        sum(c, 4, "saved");
      },
      limits);
}

TEST(Verdict, SlowRankThatNeverCallsIsLeftBehind) {
  Limits limits;
  limits.setup = milliseconds(100);
  const auto released = std::make_shared<std::atomic<bool>>(false);
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  const std::string message = message_of<RanksStillRunning>([&] {
    run(
        2,
        [released, ended](Communicator& c) {
          if (c.rank() == 0) {
            sum(c, 4, "loss");
            return;
          }
          while (!*released) {
            std::this_thread::sleep_for(milliseconds(5));
          }
          EXPECT_THROW(sum(c, 4, "loss"), RunError);
          *ended = true;
        },
        limits);
  });
  EXPECT_THAT(message, AllOf(HasSubstr("late: rank 1"), HasSubstr("left behind: rank 1")));
  *released = true;
  while (!*ended) {
    std::this_thread::sleep_for(milliseconds(5));
  }
}

TEST(Verdict, WorkGivenUpInAnUnwindingRankEndsTheRun) {
  std::atomic<int> woken{0};
  const std::string message = message_of<OutOfMemory>([&] {
    run(2, [&](Communicator& c) {
      const at::Tensor tensor = at::ones({1 << 20}, at::kFloat);
      if (c.rank() == 1) {
        Work work = c.everyone().start_all_reduce({tensor}, Reduction::sum, "gradients");
        throw OutOfMemory("in backward");
      }
      for (int call = 0; call < 2; ++call) {  // the first may still have been completed
        try {
          sum(c, 1 << 20, "gradients");
        } catch (const RunError&) {
          ++woken;
        }
      }
    });
  });
  EXPECT_EQ(message, "in backward");
  EXPECT_GE(woken, 1);
}

TEST(Verdict, WorkForgottenIsNamed) {
  const std::string message = message_of<RunError>([&] {
    run(2, [&](Communicator& c) {
      const at::Tensor out = at::ones({2}, at::kFloat);
      Work work = c.everyone().start_all_gather({out}, {at::ones({1}, at::kFloat)}, "parameters");
      if (c.rank() == 0) {
        work.release();
      }
    });
  });
  EXPECT_THAT(message, AllOf(HasSubstr("dead: rank 1 gave up all_gather 1"), HasSubstr("\"parameters\"")));
}

TEST(Verdict, UnusedRunsHaveNone) {
  run(3, [](Communicator&) {});
  EXPECT_THROW(run(3, [](Communicator& c) { c.rank() == 1 ? throw OutOfMemory("alone") : void(); }),
               OutOfMemory);
}

}  // namespace
}  // namespace ndmesh::comm
