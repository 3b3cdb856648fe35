#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ndmesh/base/error.h"

/// What each libFuzzer target consists of: one_input reads bytes of any origin. A RequestError is the right answer to bad
/// ones; anything else that is thrown, and what the sanitizers see, is a finding.
namespace ndmesh::fuzz {

void one_input(std::string_view bytes);

}  // namespace ndmesh::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    ndmesh::fuzz::one_input({reinterpret_cast<const char*>(data), size});
  } catch (const ndmesh::RequestError&) {
  }
  return 0;
}
