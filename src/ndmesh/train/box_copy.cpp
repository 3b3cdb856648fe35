#include "ndmesh/train/box_copy.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace ndmesh::train {
namespace {

/// Converts `count` elements that lie together.
using Convert = void (*)(const std::byte* source, std::int64_t count, std::byte* target);

template <typename Source, typename Target>
void convert(const std::byte* source, std::int64_t count, std::byte* target) {
  if constexpr (std::is_same_v<Source, Target>) {
    std::memcpy(target, source, static_cast<std::size_t>(count) * sizeof(Source));
  } else {
    auto* out = reinterpret_cast<Target*>(target);
    for (std::int64_t i = 0; i < count; ++i) {
      Source value;
      std::memcpy(&value, source + i * static_cast<std::int64_t>(sizeof(Source)),
                  sizeof(Source));  // may be unaligned
      out[i] = static_cast<Target>(value);
    }
  }
}

template <typename Source>
Convert conversion_from(DType target) {
  switch (target) {
    case DType::float64:
      return convert<Source, double>;
    case DType::float32:
      return convert<Source, float>;
    case DType::bfloat16:
      return convert<Source, c10::BFloat16>;
    case DType::float16:
      return convert<Source, c10::Half>;
    default:
      throw std::invalid_argument("weights are read into floating dtypes only");
  }
}

Convert conversion(DType source, DType target) {
  switch (source) {
    case DType::float64:
      return conversion_from<double>(target);
    case DType::float32:
      return conversion_from<float>(target);
    case DType::bfloat16:
      return conversion_from<c10::BFloat16>(target);
    case DType::float16:
      return conversion_from<c10::Half>(target);
    default:
      throw std::invalid_argument("weights are read from floating dtypes only");
  }
}

void check_inside(const layout::Shape& shape, const layout::Box& box) {
  bool inside = shape.size() == box.size();
  for (std::size_t dim = 0; inside && dim < box.size(); ++dim) {
    const auto [start, size] = box[dim];
    inside = start >= 0 && size >= 0 && size <= shape[dim] && start <= shape[dim] - size;
  }
  if (!inside) {
    throw std::invalid_argument("a box lies inside its tensor");
  }
}

/// Dims from this one on are one run in the source: all whole but itself.
std::size_t first_dim_of_run(const layout::Shape& shape, const layout::Box& box) {
  std::size_t dim = shape.size();
  while (dim > 0 && box[dim - 1].size == shape[dim - 1]) {
    --dim;
  }
  return dim > 0 ? dim - 1 : 0;
}

/// Counts `index` on over the first `dims` dims of `box`; false after the last.
bool advance(std::vector<std::int64_t>& index, const layout::Box& box, std::size_t dims) {
  for (std::size_t dim = dims; dim-- > 0;) {
    if (++index[dim] < box[dim].size) {
      return true;
    }
    index[dim] = 0;
  }
  return false;
}

}  // namespace

void copy_box(const std::byte* source, DType source_dtype, const layout::Shape& shape, const layout::Box& box,
              std::byte* target, DType target_dtype) {
  const Convert copy = conversion(source_dtype, target_dtype);
  check_inside(shape, box);
  const std::size_t outer = first_dim_of_run(shape, box);
  std::int64_t run = 1;
  for (std::size_t dim = outer; dim < box.size(); ++dim) {
    run *= box[dim].size;
  }
  if (layout::elements(box) == 0) {
    return;
  }
  std::vector<std::int64_t> index(outer, 0);
  do {
    std::int64_t offset = 0;
    for (std::size_t dim = 0; dim < box.size(); ++dim) {
      offset = offset * shape[dim] + box[dim].start + (dim < outer ? index[dim] : 0);
    }
    copy(source + offset * bytes_of(source_dtype), run, target);
    target += run * bytes_of(target_dtype);
  } while (advance(index, box, outer));
}

}  // namespace ndmesh::train
