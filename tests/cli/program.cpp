#include "cli/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace ndmesh::testing_cli {
namespace {

std::filesystem::path folder() {
  static const std::filesystem::path path = [] {
    const auto made = std::filesystem::path(testing::TempDir()) / ("ndmesh_cli_" + std::to_string(getpid()));
    std::filesystem::create_directories(made);
    return made;
  }();
  return path;
}

std::string content_of(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void redirect(int descriptor, const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(file, descriptor);
}

}  // namespace

std::string program() {
  const char* given = std::getenv("NDMESH_BINARY");
  return given != nullptr ? given : NDMESH_PROGRAM;
}

Result run(const std::vector<std::string>& arguments) {
  const std::string path = program();
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  const std::filesystem::path out = folder() / "out";
  const std::filesystem::path err = folder() / "err";
  const pid_t child = fork();
  if (child == 0) {
    redirect(STDOUT_FILENO, out);
    redirect(STDERR_FILENO, err);
    execv(path.c_str(), argv.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), content_of(out), content_of(err)};
}

std::string file_with(const std::string& name, const std::string& content) {
  const std::filesystem::path path = folder() / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
  return path.string();
}

}  // namespace ndmesh::testing_cli
