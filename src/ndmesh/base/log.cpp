#include "ndmesh/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>

namespace ndmesh {
namespace {

spdlog::logger& logger() {
  // Not registered with spdlog, whose registry belongs to the embedding program.
  static const std::unique_ptr<spdlog::logger> own = [] {
    auto made = std::make_unique<spdlog::logger>("ndmesh", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%n: %v");
    return made;
  }();
  return *own;
}

}  // namespace

void log_info(const std::string& message) {
  logger().info(message);
}

void log_warning(const std::string& message) {
  logger().warn("warning: " + message);
}

void log_error(const std::string& message) {
  logger().error("error: " + message);
}

void set_log_level(LogLevel level) {
  switch (level) {
    case LogLevel::info:
      return logger().set_level(spdlog::level::info);
    case LogLevel::warning:
      return logger().set_level(spdlog::level::warn);
    case LogLevel::error:
      return logger().set_level(spdlog::level::err);
  }
}

}  // namespace ndmesh
