#pragma once

#include <string>

namespace ndmesh {

/// Messages of the program to people, on standard error, through a logger of ndmesh's own: the default logger
/// of a program that embeds ndmesh is never touched. Safe from any thread; a message of several lines stays
/// whole.
void log_info(const std::string& message);
void log_warning(const std::string& message);
void log_error(const std::string& message);

enum class LogLevel { info, warning, error };
/// The least level that is written; info at first.
void set_log_level(LogLevel level);

}  // namespace ndmesh
