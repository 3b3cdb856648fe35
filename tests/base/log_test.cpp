#include "ndmesh/base/log.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

namespace ndmesh {
namespace {

TEST(Log, LeavesTheLoggersOfTheProgramAlone) {
  const auto standard = spdlog::default_logger();
  const auto level = standard->level();
  set_log_level(LogLevel::error);
  log_warning("is not written");
  set_log_level(LogLevel::info);
  EXPECT_EQ(spdlog::default_logger(), standard);
  EXPECT_EQ(standard->level(), level);
  int registered = 0;
  spdlog::apply_all([&](const auto&) { ++registered; });
  EXPECT_EQ(registered, 1);  // the standard one
}

}  // namespace
}  // namespace ndmesh
