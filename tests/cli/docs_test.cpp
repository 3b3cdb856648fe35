#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "cli/program.h"

namespace ndmesh::testing_cli {
namespace {

const std::filesystem::path root = std::filesystem::path(NDMESH_TEST_DATA) / ".." / "..";

/// The words of a line of a page that runs `ndmesh plan` or `ndmesh inspect`, without the program and comments;
/// files of the repository in full. Empty for other lines and for those that stand for a file of the reader's.
std::vector<std::string> command_of(std::string line) {
  const std::string prefix = "build/release/";
  if (line.starts_with(prefix)) line = line.substr(prefix.size());
  if (!line.starts_with("ndmesh plan ") && !line.starts_with("ndmesh inspect ")) return {};
  std::vector<std::string> words;
  std::istringstream text(line.substr(std::string("ndmesh ").size()));
  for (std::string word; text >> word && word != "#";) {
    if (word.starts_with("JOB") || word == "job.yaml" || word == "path/to/folder") return {};
    words.push_back(word.starts_with("examples/") ? (root / word).string() : word);
  }
  return words;
}

TEST(SlowDocs, CommandsOfThePagesRunAsPrinted) {
  std::set<std::vector<std::string>> commands;
  for (const std::filesystem::path& folder : {root, root / "docs", root / "examples"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".md") continue;
      std::ifstream page(entry.path());
      for (std::string line; std::getline(page, line);) commands.insert(command_of(line));
    }
  }
  commands.erase(std::vector<std::string>());
  EXPECT_GE(commands.size(), 20U);
  for (const std::vector<std::string>& command : commands) {
    const Result result = run(command);
    EXPECT_EQ(result.status, 0) << testing::PrintToString(command) << ": " << result.err;
    EXPECT_NE(result.out, "");
  }
}

}  // namespace
}  // namespace ndmesh::testing_cli
