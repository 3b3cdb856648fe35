#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace ndmesh::plan {

/// A cache of bounded size: each key has one place, and the last that came there stays. Not for several
/// threads.
template <std::size_t fields, class Value>
class DirectMapped {
 public:
  using Key = std::array<std::int64_t, fields>;

  /// `places` is a power of two.
  explicit DirectMapped(std::size_t places) : entries_(places) {}

  /// The value of `key`; `make()` makes it where another one stands. Valid until the next call.
  template <class Make>
  const Value& get(const Key& key, const Make& make) {
    Entry& entry = entries_[place_of(key) & (entries_.size() - 1)];
    if (!entry.used || entry.key != key) {
      entry.value = make();
      entry.key = key;
      entry.used = true;
    }
    return entry.value;
  }

 private:
  struct Entry {
    bool used = false;
    Key key{};
    Value value{};
  };

  /// Products of each field with an odd number of its own, which processors compute side by side.
  static std::size_t place_of(const Key& key) {
    std::uint64_t hash = 0;
    std::uint64_t factor = 0x9E3779B97F4A7C15U;
    for (const std::int64_t field : key) {
      hash += static_cast<std::uint64_t>(field) * factor;
      factor = factor * 3 + 2;
    }
    return static_cast<std::size_t>(hash >> 40);
  }

  std::vector<Entry> entries_;
};

}  // namespace ndmesh::plan
