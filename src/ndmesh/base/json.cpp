#include "ndmesh/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"

namespace ndmesh {
namespace {

using nlohmann::json;

/// Reads the text and leaves its position where the checks below can see it.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

class Checker {
 public:
  Checker(std::string_view text, const std::string& source, const JsonLimits& limits)
      : text_(text), source_(source), limits_(limits), at_(text.data()) {}

  json parse() {
    const char* end = text_.data() + text_.size();
    const auto check = [this](int, json::parse_event_t event, json& parsed) {
      return on_event(event, parsed);
    };
    try {
      return json::parse(CountingIterator(text_.data(), &at_), CountingIterator(end, &at_), check);
    } catch (const json::exception& error) {
      const std::string what = error.what();
      const std::size_t start = what.find("] ");
      fail("is not valid JSON: " +
           shown_parser_message(start == std::string::npos ? what : what.substr(start + 2)));
    }
  }

 private:
  bool on_event(json::parse_event_t event, const json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        if (keys_.size() >= limits_.depth) {
          fail(fmt::format("is nested deeper than {} levels", limits_.depth));
        }
        keys_.emplace_back();
        break;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end:
        keys_.pop_back();
        break;
      case json::parse_event_t::key:
        if (const auto& key = parsed.get_ref<const std::string&>(); !keys_.back().insert(key).second) {
          fail("has the key " + shown(key) + " twice in one object");
        }
        break;
      default:
        break;
    }
    return true;
  }

  [[noreturn]] void fail(const std::string& what) const {
    const std::string_view read = text_.substr(0, static_cast<std::size_t>(at_ - text_.data()));
    const auto line = 1 + std::count(read.begin(), read.end(), '\n');
    const std::size_t newline = read.rfind('\n');
    const std::size_t column = newline == std::string_view::npos ? read.size() : read.size() - newline - 1;
    throw RequestError(fmt::format("{}, line {}, column {}: {}", source_, line, column, what));
  }

  /// The parser's own message without what it says twice, safe to print.
  static std::string shown_parser_message(std::string message) {
    constexpr std::size_t longest = 200;
    if (const std::size_t colon = message.find(": ");
        message.starts_with("parse error at") && colon < longest) {
      message.erase(0, colon + 2);
    }
    std::replace_if(
        message.begin(), message.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
    return message.substr(0, longest);
  }

  std::string_view text_;
  const std::string& source_;
  const JsonLimits& limits_;
  const char* at_;
  std::vector<std::set<std::string>> keys_;  // of every open object; empty sets for arrays
};

}  // namespace

json parse_json(std::string_view text, const std::string& source, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    throw RequestError(
        fmt::format("{} has {} bytes of JSON; at most {} are read", source, text.size(), limits.bytes));
  }
  return Checker(text, source, limits).parse();
}

}  // namespace ndmesh
