#include "ndmesh/base/yaml_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"

namespace ndmesh {
namespace {

/// The whole of a plain scalar as a number of type T.
template <typename T>
std::optional<T> parsed(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar || node.is_quoted) {
    return std::nullopt;
  }
  std::string_view text = node.scalar;
  if (text.starts_with('+')) {
    text.remove_prefix(1);
  }
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(value) : std::nullopt;
}

/// Whether a plain scalar may stand in a flow sequence or mapping as it is: numbers, names, paths.
bool is_plain_scalar(const std::string& value) {
  const auto safe = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-+./").find(c) != std::string_view::npos;
  };
  return !value.empty() && value != "-" && value != "---" && value != "..." &&
         std::all_of(value.begin(), value.end(), safe);
}

/// A JSON string is a double-quoted YAML scalar.
std::string quoted(const std::string& value) {
  return nlohmann::json(value).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// Whether a plain scalar of these characters is read as this text and nothing else.
bool is_plain_text(const std::string& value) {
  static const std::vector<std::string> words = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
  const auto safe = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '/';
  };
  const bool starts_well = !value.empty() && value.front() != '-' && value.front() != '.';
  return starts_well && std::all_of(value.begin(), value.end(), safe) &&
         std::find(words.begin(), words.end(), lower(value)) == words.end();
}

}  // namespace

std::string IntegerRange::name() const {
  return fmt::format("{} to {}", least, most);
}

std::string NumberRange::name() const {
  return least_excluded ? fmt::format("above {}, at most {}", least, most)
                        : fmt::format("{} to {}", least, most);
}

void refuse(const YamlNode& node, const std::string& allowed) {
  throw RequestError("is " + node.shown_value() + "; allowed: " + allowed);
}

std::int64_t integer_of(const YamlNode& node, const IntegerRange& range) {
  const auto value = parsed<std::int64_t>(node);
  if (!value || *value < range.least || *value > range.most) {
    refuse(node, "an integer, " + range.name());
  }
  return *value;
}

double number_of(const YamlNode& node, const NumberRange& range) {
  const auto value = parsed<double>(node);
  const bool inside = value && std::isfinite(*value) && *value <= range.most &&
                      (range.least_excluded ? *value > range.least : *value >= range.least);
  if (!inside) {
    refuse(node, "a number, " + range.name());
  }
  return *value;
}

bool boolean_of(const YamlNode& node) {
  const bool plain = node.kind == YamlNode::Kind::scalar && !node.is_quoted;
  if (!plain || (node.scalar != "true" && node.scalar != "false")) {
    refuse(node, "true, false");
  }
  return node.scalar == "true";
}

std::string text_of(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar) {
    refuse(node, "a text");
  }
  return node.scalar;
}

std::vector<std::string> texts_of(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::scalar) {
    return {node.scalar};
  }
  if (node.kind != YamlNode::Kind::list) {
    refuse(node, "a list of texts");
  }
  std::vector<std::string> values;
  for (const YamlNode& item : node.items) {
    values.push_back(text_of(item));
  }
  return values;
}

std::vector<double> numbers_of(const YamlNode& node, std::size_t count, const NumberRange& range) {
  if (node.kind != YamlNode::Kind::list || node.items.size() != count) {
    refuse(node, fmt::format("a list of {} numbers, each {}", count, range.name()));
  }
  std::vector<double> values;
  for (const YamlNode& item : node.items) {
    values.push_back(number_of(item, range));
  }
  return values;
}

std::string yaml_of(std::int64_t value) {
  return fmt::format("{}", value);
}

std::string yaml_of(double value) {
  return fmt::format("{}", value);
}

std::string yaml_of(bool value) {
  return value ? "true" : "false";
}

std::string yaml_of(const std::string& value) {
  if (is_plain_text(value)) {
    return value;
  }
  return quoted(value);
}

std::string yaml_of(const std::vector<std::string>& values) {
  std::vector<std::string> parts;
  for (const std::string& value : values) {
    parts.push_back(yaml_of(value));
  }
  return fmt::format("[{}]", join(parts));
}

std::string yaml_of(const YamlNode& node) {
  std::vector<std::string> parts;
  switch (node.kind) {
    case YamlNode::Kind::null:
      return "~";
    case YamlNode::Kind::scalar:
      return !node.is_quoted && is_plain_scalar(node.scalar) ? node.scalar : quoted(node.scalar);
    case YamlNode::Kind::list:
      for (const YamlNode& item : node.items) {
        parts.push_back(yaml_of(item));
      }
      return fmt::format("[{}]", join(parts));
    case YamlNode::Kind::map:
      for (const auto& [key, value] : node.entries) {
        parts.push_back(fmt::format("{}: {}", yaml_of(key), yaml_of(value)));
      }
      return fmt::format("{{{}}}", join(parts));
  }
  return {};
}

}  // namespace ndmesh
