#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ndmesh/base/yaml.h"

namespace ndmesh {

struct IntegerRange {
  std::int64_t least;
  std::int64_t most;
  std::string name() const;
};

struct NumberRange {
  double least;
  double most;
  bool least_excluded = false;
  std::string name() const;
};

// Reading: each throws RequestError "is VALUE; allowed: ..." for a node of another type or out of range.
std::int64_t integer_of(const YamlNode& node, const IntegerRange& range);
double number_of(const YamlNode& node, const NumberRange& range);
bool boolean_of(const YamlNode& node);
std::string text_of(const YamlNode& node);
/// A list of texts; one text stands for a list of one.
std::vector<std::string> texts_of(const YamlNode& node);
/// A list of exactly `count` numbers.
std::vector<double> numbers_of(const YamlNode& node, std::size_t count, const NumberRange& range);

// Writing: YAML that the functions above read back to the same value.
std::string yaml_of(std::int64_t value);
std::string yaml_of(double value);
std::string yaml_of(bool value);
std::string yaml_of(const std::string& value);
std::string yaml_of(const std::vector<std::string>& values);
/// A node of any kind on one line, as a scalar that is read as the same type, [ ... ] or { ... }.
std::string yaml_of(const YamlNode& node);

/// Throws what the functions above throw.
[[noreturn]] void refuse(const YamlNode& node, const std::string& allowed);

}  // namespace ndmesh
