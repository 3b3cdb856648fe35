#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace ndmesh {

/// Base of every error that ndmesh throws. what() is complete: it says what is wrong, the offending value,
/// what is allowed and the nearest fix, in the user's own key names. Library code throws; only `main` exits.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The request cannot be met: usage, configuration, impossible mesh, unreadable file. Found before anything
/// is allocated or started. The program exits with status 2.
class RequestError : public Error {
 public:
  explicit RequestError(const std::string& problem) : RequestError(std::vector<std::string>{problem}) {}

  /// All broken rules at once, one sentence each; what() lists them, one a line.
  explicit RequestError(std::vector<std::string> problems);

  const std::vector<std::string>& problems() const { return problems_; }

 private:
  std::vector<std::string> problems_;
};

/// It failed while running. The program exits with status 1.
class RunError : public Error {
 public:
  using Error::Error;
};

/// Gathers broken rules, so that a user sees all of them in one go.
class Problems {
 public:
  void add(std::string problem);
  void add_all(const std::vector<std::string>& problems) {
    list_.insert(list_.end(), problems.begin(), problems.end());
  }
  bool empty() const { return list_.empty(); }
  const std::vector<std::string>& list() const { return list_; }

  /// Throws RequestError with everything gathered, if anything was.
  void raise() const;

 private:
  std::vector<std::string> list_;
};

}  // namespace ndmesh
