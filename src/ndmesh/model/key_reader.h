#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ndmesh/base/error.h"

namespace ndmesh::model {

struct IntegerRange {
  std::int64_t least;
  std::int64_t most;
};
struct NumberRange {
  double above;  ///< excluded
  double most;   ///< included
};

/// Typed reading of one JSON object of any origin. What is wrong is gathered with the object's name and the
/// key, and reading goes on with the fallback, so that all problems come at once. null is a value of its own:
/// it never means 0 or "absent" except where a method says so.
class KeyReader {
 public:
  /// `where` begins every message. `object` and `problems` must outlive the reader.
  KeyReader(const nlohmann::json& object, std::string where, Problems& problems);

  bool present(const std::string& key) const { return object_.contains(key); }
  /// Present and not null.
  bool has(const std::string& key) const { return present(key) && !object_[key].is_null(); }
  const nlohmann::json& operator[](const std::string& key) const { return object_[key]; }
  std::vector<std::string> keys() const;

  std::int64_t integer(const std::string& key, std::int64_t fallback, IntegerRange range);
  /// null and absent give nothing.
  std::optional<std::int64_t> optional_integer(const std::string& key, IntegerRange range);
  double number(const std::string& key, double fallback, NumberRange range);
  bool boolean(const std::string& key, bool fallback);
  /// null and absent give `fallback`.
  std::string text(const std::string& key, const std::string& fallback);

  /// "WHERE: key: what".
  void problem(const std::string& key, const std::string& what);
  /// "WHERE: key is VALUE; allowed: ...".
  void refuse(const std::string& key, const std::string& allowed);

 private:
  const nlohmann::json& object_;
  std::string where_;
  Problems& problems_;
};

}  // namespace ndmesh::model
