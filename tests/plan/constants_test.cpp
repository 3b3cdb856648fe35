#include "ndmesh/plan/profile/constants.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

namespace ndmesh::plan {
namespace {

cluster::Cluster of_architecture(const std::string& architecture) {
  cluster::Cluster cluster;
  cluster.device.architecture = architecture;
  return cluster;
}

TEST(Constants, EveryOneHasUnitOriginAndAPositiveValue) {
  for (const char* const architecture :
       {"Volta", "Ampere", "Ada", "Hopper", "Blackwell Ultra", "CDNA3", "unheard of"}) {
    const Constants constants = constants_for(of_architecture(architecture), "megatron");
    std::set<std::string> names;
    for (const Constant& constant : constants.list) {
      EXPECT_TRUE(names.insert(constant.name).second) << constant.name << " twice";
      EXPECT_GT(constant.value, 0) << constant.name;
      EXPECT_GE(constant.spread, 0) << constant.name;
      EXPECT_FALSE(constant.unit.empty()) << constant.name;
      EXPECT_FALSE(constant.origin.empty()) << constant.name;
    }
    EXPECT_GE(names.size(), 20u);
  }
}

TEST(Constants, TheArchitectureDecides) {
  const auto units = [](const std::string& architecture) {
    return constants_for(of_architecture(architecture), "megatron")["compute_units"];
  };
  EXPECT_EQ(units("Ampere"), 108);
  EXPECT_EQ(units("Hopper"), 132);
  EXPECT_EQ(units("Blackwell"), 148);
  EXPECT_EQ(units("Blackwell Ultra"), 148);  // a Blackwell
  EXPECT_EQ(units("unheard of"), 108);
}

TEST(Constants, AnUnknownNameIsAProgrammersFault) {
  Constants constants = constants_for(of_architecture("Hopper"), "megatron");
  EXPECT_THROW(constants["speed_of_light"], std::out_of_range);
  EXPECT_THROW(constants.at("speed_of_light"), std::out_of_range);
  constants.at("memory_efficiency") = 0.5;
  EXPECT_EQ(constants["memory_efficiency"], 0.5);
}

}  // namespace
}  // namespace ndmesh::plan
