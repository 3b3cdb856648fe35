#include "ndmesh/comm/kernels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ndmesh/comm/elements.h"
#include "ndmesh/comm/streamed_copy.h"
#include "ndmesh/comm/vectorise.h"

namespace ndmesh::comm {
namespace {

/// Partial results live in a buffer of this many elements, which stays in the first-level cache.
constexpr std::int64_t block = 1024;

template <class T>
struct Tag {
  using Type = T;
};

/// Calls `visit` with the Tag of a dtype that can be reduced.
template <class Visit>
void with_dtype(at::ScalarType dtype, const Visit& visit) {
  switch (dtype) {
    case at::kDouble:
      return visit(Tag<double>());
    case at::kFloat:
      return visit(Tag<float>());
    case at::kBFloat16:
      return visit(Tag<BFloat16>());
    case at::kHalf:
      return visit(Tag<Half>());
    case at::kLong:
      return visit(Tag<std::int64_t>());
    default:
      TORCH_CHECK(false, "check_call lets no ", dtype, " through to a reduction or conversion");
  }
}

template <class T>
using Widened = decltype(widen(T()));

/// The type in which elements of `From` are added up for a result of `To`.
template <class To, class From>
using Sum = std::conditional_t<std::is_same_v<To, double>, double, Widened<From>>;

template <class To, class From>
constexpr bool convertible = std::is_same_v<To, From> ||
                             (!std::is_same_v<To, std::int64_t> && !std::is_same_v<From, std::int64_t>);

struct Add {
  template <class T>
  static T apply(T a, T b) {
    return a + b;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return (a >= b || a != a) ? a : b;  // a NaN on either side wins
  }
};

template <class T>
const T* at_element(const void* memory, std::int64_t index) {
  return static_cast<const T*>(memory) + index;
}

template <class T>
T* at_element(void* memory, std::int64_t index) {
  return static_cast<T*>(memory) + index;
}

/// part[i] = combination over ranks of from[rank][begin + i], for up to `block` elements; two sources a pass.
template <class Combine, class From, class Wide>
[[gnu::always_inline]] inline void combine_block(Wide* __restrict part, Sources from, std::int64_t begin,
                                                 std::int64_t count) {
  const From* first = at_element<From>(from[0], begin);
  for (std::int64_t i = 0; i < count; ++i) {
    part[i] = static_cast<Wide>(widen(first[i]));
  }
  std::size_t rank = 1;
  for (; rank + 1 < from.size(); rank += 2) {
    const From* a = at_element<From>(from[rank], begin);
    const From* b = at_element<From>(from[rank + 1], begin);
    for (std::int64_t i = 0; i < count; ++i) {
      part[i] = Combine::apply(Combine::apply(part[i], static_cast<Wide>(widen(a[i]))),
                               static_cast<Wide>(widen(b[i])));
    }
  }
  if (rank < from.size()) {
    const From* last = at_element<From>(from[rank], begin);
    for (std::int64_t i = 0; i < count; ++i) {
      part[i] = Combine::apply(part[i], static_cast<Wide>(widen(last[i])));
    }
  }
}

template <class To, class From>
void sum_typed(To* to, Sources from, bool accumulate, std::int64_t count) {
  using Wide = Sum<To, From>;
  const bool streams = !accumulate && static_cast<std::size_t>(count) * sizeof(To) >= streamed_bytes;
  vectorise([&]() __attribute__((always_inline)) {
    Wide part[block];
    alignas(64) To result[block];
    for (std::int64_t begin = 0; begin < count; begin += block) {
      const std::int64_t n = std::min(block, count - begin);
      To* out = to + begin;
      combine_block<Add, From>(part, from, begin, n);
      if (accumulate) {
        for (std::int64_t i = 0; i < n; ++i) {
          part[i] += static_cast<Wide>(widen(out[i]));
        }
      }
      To* narrowed = streams ? result : out;
      for (std::int64_t i = 0; i < n; ++i) {
        narrowed[i] = Narrow<To>::from(part[i]);
      }
      if (streams) {
        streamed_copy(out, result, static_cast<std::size_t>(n) * sizeof(To));
      }
    }
  });
  if (streams) {
    end_streaming();
  }
}

template <class Combine, class T>
void reduce_typed(std::span<void* const> tensors, std::int64_t begin, std::int64_t count) {
  const Sources from(tensors.data(), tensors.size());
  vectorise([&]() __attribute__((always_inline)) {
    Widened<T> part[block];
    T result[block];
    for (std::int64_t at = begin; at < begin + count; at += block) {
      const std::int64_t n = std::min(block, begin + count - at);
      combine_block<Combine, T>(part, from, at, n);
      for (std::int64_t i = 0; i < n; ++i) {
        result[i] = Narrow<T>::from(part[i]);
      }
      for (void* tensor : tensors) {
        std::memcpy(at_element<T>(tensor, at), result, static_cast<std::size_t>(n) * sizeof(T));
      }
    }
  });
}

template <class To, class From>
void convert_typed(To* to, const From* from, std::int64_t count) {
  vectorise([&]() __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < count; ++i) {
      to[i] = Narrow<To>::from(widen(from[i]));
    }
  });
}

}  // namespace

void copy_elements(void* to, at::ScalarType to_dtype, const void* from, at::ScalarType from_dtype,
                   std::int64_t count) {
  if (count == 0 || to == from) {
    return;
  }
  if (to_dtype == from_dtype) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * c10::elementSize(to_dtype));
    return;
  }
  with_dtype(to_dtype, [&]<class To>(Tag<To>) {
    with_dtype(from_dtype, [&]<class From>(Tag<From>) {
      if constexpr (convertible<To, From>) {
        convert_typed(static_cast<To*>(to), static_cast<const From*>(from), count);
      }
    });
  });
}

void sum_elements(void* to, at::ScalarType to_dtype, Sources from, at::ScalarType from_dtype, bool accumulate,
                  std::int64_t count) {
  with_dtype(to_dtype, [&]<class To>(Tag<To>) {
    with_dtype(from_dtype, [&]<class From>(Tag<From>) {
      if constexpr (std::is_same_v<To, From> || (convertible<To, From> && sizeof(To) > sizeof(From))) {
        sum_typed<To, From>(static_cast<To*>(to), from, accumulate, count);
      }
    });
  });
}

void reduce_in_place(std::span<void* const> tensors, at::ScalarType dtype, Reduction reduction,
                     std::int64_t begin, std::int64_t count) {
  with_dtype(dtype, [&]<class T>(Tag<T>) {
    if (reduction == Reduction::sum) {
      reduce_typed<Add, T>(tensors, begin, count);
    } else {
      reduce_typed<Max, T>(tensors, begin, count);
    }
  });
}

}  // namespace ndmesh::comm
