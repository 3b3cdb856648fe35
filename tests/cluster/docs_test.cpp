#include <gmock/gmock.h>

#include <filesystem>

#include "cluster/support.h"
#include "ndmesh/base/file.h"
#include "ndmesh/base/text.h"

namespace ndmesh::cluster {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const std::filesystem::path root = std::filesystem::path(NDMESH_TEST_DATA) / ".." / "..";

/// Keys that the refusal of an unknown one lists.
std::vector<std::string> keys_of(const std::string& yaml_with_unknown_key) {
  const std::string message = refusal_of(yaml_with_unknown_key);
  const std::string list = "; keys: ";
  const std::size_t start = message.find(list);
  EXPECT_NE(start, std::string::npos) << message;
  std::vector<std::string> keys;
  for (const std::string& key : split(message.substr(start + list.size()), ',')) {
    const std::string text = key.substr(key.find_first_not_of(' '));
    keys.push_back(text.substr(0, text.find('\n')));
  }
  return keys;
}

TEST(Docs, NameEveryKey) {
  const std::string page = read_file(root / "docs" / "clusters.md", 1 << 20);
  const std::vector<std::pair<std::string, std::string>> sections = {
      {"", "{qq: 1}"},
      {"device.", "{device: {qq: 1}}"},
      {"scale_up.", "{scale_up: {qq: 1}}"},
      {"pcie.", "{pcie: {qq: 1}}"},
      {"numa.", "{numa: {qq: 1}}"},
      {"nics.", "{nics: {qq: 1}}"},
      {"switches[].", "{switches: [{qq: 1}]}"}};
  std::size_t keys = 0;
  for (const auto& [prefix, yaml] : sections) {
    for (const std::string& key : keys_of(yaml)) {
      EXPECT_THAT(page, HasSubstr("| `" + prefix + key + "` |"));
      ++keys;
    }
  }
  EXPECT_EQ(keys, 15U + 12 + 5 + 3 + 2 + 3 + 3);
}

TEST(Docs, TheirFileIsRead) {
  const std::string page = read_file(root / "docs" / "clusters.md", 1 << 20);
  const std::string fence = "```yaml\n";
  const std::size_t start = page.find(fence) + fence.size();
  const Cluster cluster = parse(page.substr(start, page.find("```", start) - start));
  EXPECT_EQ(cluster.devices(), 1024);
  EXPECT_EQ(cluster.levels.size(), 3U);
}

TEST(Examples, AreRead) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root / "examples" / "clusters")) {
    EXPECT_THAT(refusal([&] { read_cluster(entry.path()); }), IsEmpty()) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 4U);
}

}  // namespace
}  // namespace ndmesh::cluster
