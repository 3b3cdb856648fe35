#include "ndmesh/schedule/schedule_file.h"

#include <gmock/gmock.h>

#include "ndmesh/base/error.h"
#include "schedule/support.h"

namespace ndmesh::schedule {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Compute actions as a file has them.
std::string text_of(const Schedule& schedule) {
  std::string text = schedule.shape.kind == Kind::zb_v ? "v\n" : "";
  for (const auto& actions : schedule.ranks) {
    for (const Action& action : actions) {
      if (!is_compute(action.kind)) continue;
      text += "FBIW"[static_cast<std::size_t>(action.kind)] + std::to_string(action.chunk) + "." +
              std::to_string(action.micro_batch) + " ";
    }
    text += "\n";
  }
  return text;
}

TEST(ScheduleFile, EveryGeneratedScheduleComesBack) {
  for (const Shape& shape : small_shapes(4, 6)) {
    if (shape.ranks == 1) continue;
    SCOPED_TRACE(testing::PrintToString(shape));
    const Schedule schedule = make_schedule(shape);
    const Schedule read = parse_schedule(text_of(schedule), "a.schedule");
    EXPECT_EQ(read.ranks, schedule.ranks);
    EXPECT_THAT(defects(read), IsEmpty());
    for (std::int64_t rank = 0; rank < shape.ranks; ++rank)
      EXPECT_EQ(most_in_flight(read, rank), peak_in_flight(shape, rank));
  }
}

TEST(ScheduleFile, CommentsAndBlankLinesAreNoRanks) {
  const Schedule read = parse_schedule("# two ranks\n\nF0.0 B0.0  # first\n\tF0.0 B0.0\r\n", "a.schedule");
  EXPECT_EQ(read.shape, (Shape{Kind::gpipe, 2, 1, 1}));
}

TEST(ScheduleFile, WhatIsNoActionIsRefusedByLine) {
  const auto refusals = [](const std::string& text) {
    try {
      parse_schedule(text, "a.schedule");
    } catch (const RequestError& error) {
      return error.problems();
    }
    return std::vector<std::string>();
  };
  EXPECT_THAT(refusals("F0.0 B0\nG0.0\n"), ElementsAre(HasSubstr("a.schedule, line 1: \"B0\" is no action"),
                                                       HasSubstr("line 2: \"G0.0\"")));
  for (const char* word : {"F-1.0", "F0.-1", "F0.0x", "F99999999999.0", "F0.99999999", "F", "F.", "f0.0"})
    EXPECT_THAT(refusals(word), ElementsAre(HasSubstr("is no action"))) << word;
  EXPECT_THAT(refusals("# nothing\n"), ElementsAre(HasSubstr("no rank has actions")));
  EXPECT_THAT(refusals("F0.0 F2000000.2000000\n"), ElementsAre(HasSubstr("more than the")));
}

TEST(ScheduleFile, WhatCannotRunIsADefect) {
  EXPECT_THAT(defects(parse_schedule("F0.0 B0.0 F0.1\nF0.0 B0.0 F0.1 B0.1\n", "a.schedule")),
              testing::Contains(HasSubstr("rank 0, chunk 0, micro-batch 1: neither backward")));
  EXPECT_THAT(defects(parse_schedule("F0.0 F0.1 B0.0 B0.1\nF0.0 B0.0 B0.1 F0.1\n", "a.schedule")),
              testing::Contains(HasSubstr("backward comes before forward")));
}

TEST(TimelineSvg, HasARectangleForEveryAction) {
  const Shape shape = {Kind::zb_v, 3, 2, 4};
  const std::string svg = timeline_svg(simulate(shape, equal_stages(shape, {1, 1, 1, 0}), true), shape);
  std::size_t rectangles = 0;
  for (std::size_t at = svg.find("<rect"); at != std::string::npos; at = svg.find("<rect", at + 1))
    ++rectangles;
  EXPECT_EQ(rectangles, 1 + 3 * 6 * 4);  // the ground, and three passes of 6 stages and 4 micro-batches
  EXPECT_THAT(svg, testing::StartsWith("<svg "));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
}

}  // namespace
}  // namespace ndmesh::schedule
