#include <CLI/CLI.hpp>

int main(int argc, char** argv) {
  CLI::App app("ndmesh");
  app.set_version_flag("--version", "0.1.0");
  CLI11_PARSE(app, argc, argv);
  return 0;
}
