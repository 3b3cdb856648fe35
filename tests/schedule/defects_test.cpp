#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "schedule/event_loop.h"
#include "schedule/support.h"

namespace ndmesh::schedule {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Actions = std::vector<Action>;
using enum ActionKind;

constexpr Shape plain = {Kind::one_f_one_b, 3, 1, 4};

/// The defects of a sound schedule with the actions of `rank` changed.
std::vector<std::string> defects_with(Schedule schedule, std::size_t rank,
                                      const std::function<void(Actions&)>& change) {
  change(schedule.ranks[rank]);
  return defects(schedule);
}

std::vector<std::string> broken(const Shape& shape, std::size_t rank,
                                const std::function<void(Actions&)>& change) {
  return defects_with(make_schedule(shape), rank, change);
}

Actions::iterator find(Actions& actions, const Action& action) {
  const auto found = std::find(actions.begin(), actions.end(), action);
  EXPECT_NE(found, actions.end());
  return found;
}

std::function<void(Actions&)> without(const Action& action) {
  return [action](Actions& actions) { actions.erase(find(actions, action)); };
}

std::function<void(Actions&)> swapped(const Action& one, const Action& other) {
  return [one, other](Actions& actions) { std::iter_swap(find(actions, one), find(actions, other)); };
}

TEST(Defects, EveryPassIsThereOnce) {
  EXPECT_THAT(broken(plain, 1, without({forward, 0, 2})),
              ElementsAre("rank 1, chunk 0, micro-batch 2: no forward"));
  EXPECT_THAT(
      broken(plain, 2, without({backward, 0, 0})),
      ElementsAre(HasSubstr("micro-batch 0: neither backward nor both of input_grad and weight_grad")));
  EXPECT_THAT(broken(plain, 2,
                     [](Actions& a) {
                       a.insert(a.begin(), {forward, 0, 3});
                     }),
              Contains(AllOf(HasSubstr("rank 2, action 14"), HasSubstr("micro-batch 3 a second time"))));
  EXPECT_THAT(broken({Kind::zb_h1, 3, 1, 4}, 0, without({weight_grad, 0, 1})),
              ElementsAre(HasSubstr("neither backward nor both")));
  EXPECT_THAT(broken({Kind::zb_h1, 3, 1, 4}, 0,
                     [](Actions& a) {
                       a.insert(a.end() - 1, {backward, 0, 1});
                     }),
              Contains(HasSubstr("backward, and input_grad or weight_grad beside it")));
}

TEST(Defects, PassesAreInOrder) {
  EXPECT_THAT(broken(plain, 2, swapped({forward, 0, 1}, {backward, 0, 1})),
              Contains(HasSubstr("backward comes before forward")));
  EXPECT_THAT(broken({Kind::zb_h1, 3, 1, 4}, 0, swapped({input_grad, 0, 1}, {weight_grad, 0, 1})),
              Contains(HasSubstr("weight_grad comes before input_grad")));
  EXPECT_THAT(broken(plain, 1, swapped({receive_forward, 0, 1}, {forward, 0, 1})),
              ElementsAre(HasSubstr("forward comes before receive_forward")));
  EXPECT_THAT(broken(plain, 1, swapped({backward, 0, 1}, {send_backward, 0, 1})),
              ElementsAre(HasSubstr("send_backward comes before backward")));
  // Both chunks of the last rank of a V: the second takes what the first has made.
  EXPECT_THAT(broken({Kind::zb_v, 2, 2, 1}, 1, swapped({forward, 0, 0}, {forward, 1, 0})),
              testing::Not(IsEmpty()));
}

TEST(Defects, MessagesHaveTwoEnds) {
  EXPECT_THAT(broken(plain, 0, without({send_forward, 0, 3})),
              ElementsAre(HasSubstr("micro-batch 3: send_forward is missing")));
  EXPECT_THAT(broken(plain, 0, without({receive_backward, 0, 3})),
              ElementsAre(HasSubstr("receive_backward is missing")));
  EXPECT_THAT(broken(plain, 2,
                     [](Actions& a) {
                       a.insert(a.end() - 1, {send_forward, 0, 0});
                     }),
              ElementsAre(HasSubstr("send_forward has no other rank at its other end")));
}

TEST(Defects, LinksKeepTheOrder) {
  EXPECT_THAT(broken(plain, 0, swapped({send_forward, 0, 0}, {send_forward, 0, 1})),
              Contains(HasSubstr("send_forward comes before forward")));
  // Allowed on either rank by itself.
  const auto late = [](Actions& actions) {
    const auto first = find(actions, {send_forward, 0, 0});
    std::rotate(first, first + 1, find(actions, {send_forward, 0, 1}) + 1);
  };
  EXPECT_THAT(
      broken({Kind::gpipe, 3, 1, 4}, 0, late),
      ElementsAre("link from rank 0 to rank 1: message 0 is activations of micro-batch 1 for stage 1, but "
                  "activations of micro-batch 0 for stage 1 are received"));
}

TEST(Defects, CyclesAreFound) {
  // Rank 0 wants the first gradient before it sends the second micro-batch, rank 1 the second micro-batch before
  // it makes the first gradient.
  Schedule schedule = {{Kind::one_f_one_b, 2, 1, 2}, {}};
  schedule.ranks.push_back({{forward, 0, 0},
                            {send_forward, 0, 0},
                            {receive_backward, 0, 0},
                            {backward, 0, 0},
                            {forward, 0, 1},
                            {send_forward, 0, 1},
                            {receive_backward, 0, 1},
                            {backward, 0, 1},
                            {optimizer, 0, 0}});
  schedule.ranks.push_back({{receive_forward, 0, 0},
                            {forward, 0, 0},
                            {receive_forward, 0, 1},
                            {forward, 0, 1},
                            {backward, 0, 0},
                            {send_backward, 0, 0},
                            {backward, 0, 1},
                            {send_backward, 0, 1},
                            {optimizer, 0, 0}});
  EXPECT_THAT(defects(schedule),
              ElementsAre("rank 0 waits for ever in action 2, receive_backward of chunk 0, micro-batch 0",
                          "rank 1 waits for ever in action 2, receive_forward of chunk 0, micro-batch 1"));
}

TEST(Defects, OptimizerIsLast) {
  EXPECT_THAT(broken(plain, 0, [](Actions& a) { a.pop_back(); }),
              ElementsAre("rank 0: 0 optimizer actions instead of 1"));
  EXPECT_THAT(broken(plain, 0, [](Actions& a) { std::swap(a.back(), a[a.size() - 2]); }),
              ElementsAre("rank 0: optimizer is not the last action"));
  EXPECT_THAT(broken(plain, 0, [](Actions& a) { a.clear(); }), Contains(HasSubstr("0 optimizer actions")));
}

TEST(Defects, NamesAreInRange) {
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  for (const Action& action : {Action{forward, 1, 0}, Action{forward, 0, 4}, Action{forward, -1, 0},
                               Action{forward, 0, -1}, Action{backward, most, most}}) {
    EXPECT_THAT(broken(plain, 0, [&](Actions& a) { a.insert(a.begin(), action); }),
                ElementsAre(HasSubstr("there are 1 chunks and 4 micro-batches")));
  }
  EXPECT_THAT(broken(plain, 0,
                     [](Actions& a) {
                       a.insert(a.begin(), {static_cast<ActionKind>(99), 0, 0});
                     }),
              ElementsAre(HasSubstr("99 is no kind of action")));
  EXPECT_THAT(broken(plain, 0,
                     [](Actions& a) {
                       a.insert(a.begin(), {ActionKind::offload, 0, 0});
                     }),
              ElementsAre(HasSubstr("offload is not built yet")));
}

TEST(Defects, ShardingStandsAroundTheWorkOfItsChunk) {
  const Schedule sound = with_sharding(make_schedule({Kind::interleaved, 2, 2, 4}), true);
  EXPECT_THAT(defects(sound), testing::IsEmpty());
  const auto moved = [&](ActionKind kind, bool to_front) {
    return defects_with(sound, 1, [&](Actions& a) {
      const auto at = std::find(a.begin(), a.end(), Action{kind, 1, 0});
      to_front ? std::rotate(a.begin(), at, at + 1) : std::rotate(at, at + 1, a.end() - 1);
    });
  };
  EXPECT_THAT(moved(ActionKind::unshard, false),
              ElementsAre(HasSubstr("unshard of chunk 1 comes behind forward")));
  EXPECT_THAT(moved(ActionKind::reshard, true),
              ElementsAre(HasSubstr("reshard of chunk 1 comes before forward")));
  EXPECT_THAT(moved(ActionKind::reduce, true),
              ElementsAre(HasSubstr("reduce of chunk 1 comes before forward")));
  EXPECT_THAT(defects_with(sound, 0,
                           [](Actions& a) {
                             a.insert(a.begin(), {ActionKind::unshard, 0, 0});
                           }),
              ElementsAre(HasSubstr("unshard of chunk 0 a second time")));
  EXPECT_THAT(defects_with(sound, 0,
                           [](Actions& a) {
                             a.insert(a.begin(), {ActionKind::reduce, 2, 0});
                           }),
              ElementsAre(HasSubstr("reduce of chunk 2; there are 2 chunks")));
}

TEST(Defects, ShapesAreChecked) {
  EXPECT_THAT(defects({{Kind::gpipe, 0, 1, 1}, {}}), ElementsAre(HasSubstr("mesh.pp_size: 0")));
  EXPECT_THAT(defects({{Kind::zb_v, 2, 1, 1}, {{}, {}}}), ElementsAre(HasSubstr("pipeline.chunks")));
  EXPECT_THAT(defects({{Kind::gpipe, 2, 1, 1}, {{}}}),
              ElementsAre("1 ranks have actions, but mesh.pp_size is 2"));
  EXPECT_THAT(defects({{Kind::gpipe, 4, 1, 1000}, {{}, {}, {}, {}}}), SizeIs(20));  // not thousands
}

/// Takes one action out, writes one twice, swaps two or renames one.
void change(Actions& actions, std::mt19937& random) {
  const std::size_t at = random() % actions.size();
  switch (random() % 4) {
    case 0:
      actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 1:
      actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(random() % actions.size()), actions[at]);
      break;
    case 2:
      std::swap(actions[at], actions[random() % actions.size()]);
      break;
    default:
      actions[at].micro_batch += static_cast<std::int32_t>(random() % 3) - 1;
  }
}

TEST(Defects, WhatIsSoundRuns) {
  std::mt19937 random(5);
  std::int64_t sound = 0, unsound = 0;
  for (const Shape& shape : small_shapes(3, 4)) {
    if (shape.ranks == 1) continue;
    for (int i = 0; i < 100; ++i) {
      Schedule schedule = make_schedule(shape);
      Actions& actions = schedule.ranks[random() % schedule.ranks.size()];
      const Actions before = actions;
      change(actions, random);
      const bool is_sound = defects(schedule).empty();
      (is_sound ? sound : unsound) += 1;
      if (!is_sound) {
        EXPECT_NE(actions, before);
        continue;
      }
      const std::vector<StageSeconds> stages = random_stages(shape, random);
      EXPECT_TRUE(EventLoop(schedule, stages).finishes()) << testing::PrintToString(shape);
    }
  }
  EXPECT_GT(sound, 100);
  EXPECT_GT(unsound, 1000);
}

TEST(Defects, OrdersOfOnesOwnAreSound) {
  // Backwards in the other order.
  Schedule schedule = make_schedule({Kind::gpipe, 2, 1, 2});
  for (Actions& actions : schedule.ranks) {
    for (Action& action : actions) {
      const bool back =
          action.kind == backward || action.kind == send_backward || action.kind == receive_backward;
      if (back) action.micro_batch = 1 - action.micro_batch;
    }
  }
  EXPECT_THAT(defects(schedule), IsEmpty());
}

}  // namespace
}  // namespace ndmesh::schedule
