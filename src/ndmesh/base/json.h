#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ndmesh {

struct JsonLimits {
  std::size_t depth = 64;                             ///< nested arrays and objects
  std::size_t bytes = std::size_t{64} * 1024 * 1024;  ///< of the text
};

/// Parses one JSON document of any origin. RequestError, with `source` and line and column, for everything
/// that is not exactly one document of RFC 8259: trailing text, NaN, numbers out of range, invalid UTF-8;
/// also for a key given twice in one object (readers disagree on which counts) and for what is deeper or
/// longer than `limits`.
nlohmann::json parse_json(std::string_view text, const std::string& source, const JsonLimits& limits = {});

}  // namespace ndmesh
