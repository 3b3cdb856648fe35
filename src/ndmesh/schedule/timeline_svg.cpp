#include <fmt/format.h>

#include <algorithm>

#include "ndmesh/schedule/simulate.h"

namespace ndmesh::schedule {
namespace {

constexpr double width = 1200, row = 28, left = 64, top = 12, digit = 8;

/// Hue of a kind; chunks differ in lightness.
std::string colour_of(const Interval& interval, std::int64_t chunks) {
  const int hue = interval.kind == ActionKind::forward       ? 210
                  : interval.kind == ActionKind::weight_grad ? 90
                                                             : 30;
  const double dark = static_cast<double>(interval.chunk) / static_cast<double>(chunks);
  return fmt::format("hsl({}, 65%, {:.0f}%)", hue, 78 - 35 * dark);
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, text);
}

}  // namespace

std::string timeline_svg(const Simulation& simulation, const Shape& shape) {
  const double height = 2 * top + row * static_cast<double>(shape.ranks);
  const double scale = simulation.seconds > 0 ? (width - left - top) / simulation.seconds : 0;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, height);
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
    const double y = top + row * static_cast<double>(rank);
    svg += text_at(left - digit, y + 0.62 * row, "end", fmt::format("rank {}", rank));
  }
  for (const Interval& interval : simulation.intervals) {
    const double x = left + interval.start * scale, wide = (interval.end - interval.start) * scale;
    const double y = top + row * static_cast<double>(interval.rank);
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" stroke=\"white\"/>\n", x,
        y, wide, row - 4, colour_of(interval, shape.chunks));
    const std::string number = std::to_string(interval.micro_batch);
    if (wide >= digit * static_cast<double>(number.size()))
      svg += text_at(x + wide / 2, y + 0.57 * row, "middle", number);
  }
  return svg + "</svg>\n";
}

}  // namespace ndmesh::schedule
