#include "ndmesh/cli/runtime/commands.h"

#include <c10/util/Exception.h>

#include <cstdio>
#include <cstdlib>

#include "ndmesh/base/log.h"
#include "ndmesh/comm/world.h"

namespace ndmesh::cli {

void register_runtime_commands(CLI::App& app, Chosen& chosen) {
  register_train(app, chosen);
  register_parity(app, chosen);
  register_generate(app, chosen);
}

int with_libtorch(const std::function<int()>& action) {
  try {
    return action();
  } catch (const comm::RanksStillRunning& error) {
    log_error(error.what());
    std::fflush(nullptr);
    std::_Exit(failed);
  } catch (const c10::Error& error) {  // what() would end in a backtrace
    log_error(error.what_without_backtrace());
    return failed;
  }
}

}  // namespace ndmesh::cli
