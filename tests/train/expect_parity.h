#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "ndmesh/train/parity.h"
#include "train/models.h"
#include "train/parity_cases.h"
#include "train/scratch_folder.h"

/// A row of a parity grid as a test.
namespace ndmesh::test {

inline void expect_parity(const ParityCase& one) {
  const train::ScratchFolder folder;
  job::Job job = tiny_job(folder.path(), one.variant, one.levers);
  job.batch.global = one.global;
  job.batch.micro = one.micro;
  job.dtype = one.dtype;
  for (const train::MeshParity& result : train::check_parity(job, {mesh::parse_mesh(one.mesh)})) {
    EXPECT_TRUE(result.held) << one.variant << " on " << result.mesh << " in " << name_of(one.dtype)
                             << ": loss " << result.loss_error << ", gradient " << result.gradient_error
                             << " (" << result.worst_parameter << ")";
  }
}

inline std::string name_of_case(const testing::TestParamInfo<ParityCase>& info) {
  std::string name = info.param.variant + "_" + info.param.mesh + "_micro_" +
                     std::to_string(info.param.micro) + "_" + std::string(name_of(info.param.dtype));
  for (const std::string& lever : info.param.levers) {
    name += "_" + lever;
  }
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace ndmesh::test
