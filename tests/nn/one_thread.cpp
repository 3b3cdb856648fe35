#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace ndmesh::nn {
namespace {

/// As a rank does: small operators on several threads of a busy machine mostly wait for each other.
class OneThread final : public testing::Environment {
  void SetUp() override { at::set_num_threads(1); }
};

const testing::Environment* const one_thread = testing::AddGlobalTestEnvironment(new OneThread);

}  // namespace
}  // namespace ndmesh::nn
