#include "ndmesh/model/key_reader.h"

#include <fmt/format.h>

#include <limits>

#include "ndmesh/base/text.h"

namespace ndmesh::model {
namespace {

std::string shown_value(const nlohmann::json& value) {
  if (value.is_string()) {
    return shown(value.get_ref<const std::string&>());
  }
  if (value.is_structured()) {
    return value.is_array() ? "a list" : "an object";
  }
  return value.dump();
}

/// JSON integers only: 4096.0 is a number that some writer rounded, 2^63 does not fit.
std::optional<std::int64_t> integer_in(const nlohmann::json& value, IntegerRange range) {
  if (!value.is_number_integer()) {
    return std::nullopt;
  }
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > largest) {
    return std::nullopt;
  }
  const auto integer = value.get<std::int64_t>();
  return integer >= range.least && integer <= range.most ? std::optional(integer) : std::nullopt;
}

std::string named(IntegerRange range) {
  return fmt::format("an integer from {} to {}", range.least, range.most);
}

}  // namespace

KeyReader::KeyReader(const nlohmann::json& object, std::string where, Problems& problems)
    : object_(object), where_(std::move(where)), problems_(problems) {}

std::vector<std::string> KeyReader::keys() const {
  std::vector<std::string> names;
  for (const auto& item : object_.items()) {
    names.push_back(item.key());
  }
  return names;
}

std::int64_t KeyReader::integer(const std::string& key, std::int64_t fallback, IntegerRange range) {
  if (!present(key)) {
    return fallback;
  }
  const auto value = integer_in(object_[key], range);
  if (!value) {
    refuse(key, named(range));
  }
  return value.value_or(fallback);
}

std::optional<std::int64_t> KeyReader::optional_integer(const std::string& key, IntegerRange range) {
  if (!has(key)) {
    return std::nullopt;
  }
  const auto value = integer_in(object_[key], range);
  if (!value) {
    refuse(key, named(range) + ", or null");
  }
  return value;
}

double KeyReader::number(const std::string& key, double fallback, NumberRange range) {
  if (!present(key)) {
    return fallback;
  }
  const nlohmann::json& value = object_[key];
  if (value.is_number() && value.get<double>() > range.above && value.get<double>() <= range.most) {
    return value.get<double>();
  }
  refuse(key, fmt::format("a number above {} and at most {}", range.above, range.most));
  return fallback;
}

bool KeyReader::boolean(const std::string& key, bool fallback) {
  if (!present(key)) {
    return fallback;
  }
  if (!object_[key].is_boolean()) {
    refuse(key, "true or false");
    return fallback;
  }
  return object_[key].get<bool>();
}

std::string KeyReader::text(const std::string& key, const std::string& fallback) {
  if (!has(key)) {
    return fallback;
  }
  if (!object_[key].is_string()) {
    refuse(key, "a text");
    return fallback;
  }
  return object_[key].get<std::string>();
}

void KeyReader::problem(const std::string& key, const std::string& what) {
  problems_.add(fmt::format("{}: {}: {}", where_, key, what));
}

void KeyReader::refuse(const std::string& key, const std::string& allowed) {
  problems_.add(fmt::format("{}: {} is {}; allowed: {}", where_, key, shown_value(object_[key]), allowed));
}

}  // namespace ndmesh::model
