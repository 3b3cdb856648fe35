#include "ndmesh/train/safetensors.h"

#include <ATen/Functions.h>
#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <random>

#include "ndmesh/base/error.h"
#include "train/hostile_file.h"
#include "train/scratch_folder.h"

namespace ndmesh::train {
namespace {

using layout::Box;
using testing::HasSubstr;

Box whole(const std::vector<std::int64_t>& shape) {
  Box box;
  for (const std::int64_t extent : shape) {
    box.push_back({0, extent});
  }
  return box;
}

at::Tensor read(const SafetensorsFile& file, const std::string& name, at::ScalarType dtype) {
  const auto& shape = file.tensor(name).shape;
  at::Tensor out = at::full(shape, std::nan(""), at::TensorOptions().dtype(dtype));
  file.read(name, whole(shape), out);
  return out;
}

/// Writes one file of the given tensors.
void write(const std::filesystem::path& file, const std::map<std::string, at::Tensor>& values, DType dtype) {
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, value] : values) {
    tensors.push_back({name, value.sizes().vec()});
  }
  write_safetensors(file, tensors, dtype, {{"format", "pt"}},
                    [&](const std::string& name) { return values.at(name); });
}

TEST(SafetensorsFile, ReadsWhatTheReferenceLibraryWrote) {
  const SafetensorsFile file(std::string(NDMESH_TEST_DATA) + "/safetensors/mixed.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.metadata().at("note"), "größe");
  EXPECT_TRUE(read(file, "f32", at::kFloat).equal(at::arange(6, at::kFloat).reshape({2, 3}) / 8));
  EXPECT_TRUE(read(file, "f32", at::kDouble).equal(at::arange(6, at::kDouble).reshape({2, 3}) / 8));
  EXPECT_TRUE(read(file, "bf16", at::kFloat).equal(at::tensor({1.0F, -2.5F, 3.140625F, INFINITY})));
  EXPECT_TRUE(
      read(file, "f16", at::kDouble).equal(at::tensor({0.5, 65504.0, std::ldexp(1.0, -24)}, at::kDouble)));
  EXPECT_EQ(read(file, "f64", at::kDouble).item<double>(), 3.141592653589793);
  EXPECT_EQ(read(file, "f64", at::kFloat).item<float>(), 3.14159274F);
  EXPECT_EQ(read(file, "f64", at::kBFloat16).item<float>(), 3.140625F);
  EXPECT_EQ(read(file, "empty", at::kFloat).numel(), 0);
}

TEST(SafetensorsFile, RefusesWhatIsNoWeight) {
  const SafetensorsFile file(std::string(NDMESH_TEST_DATA) + "/safetensors/mixed.safetensors");
  at::Tensor out = at::empty({2});
  try {
    file.read("i64", {{0, 2}}, out);
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), HasSubstr("tensor \"i64\" has dtype I64; weights are F64"));
  }
  EXPECT_THROW(file.read("none", {{0, 2}}, out), RequestError);
  EXPECT_THROW(file.read("f32", {{0, 2}, {0, 3}}, out), std::invalid_argument);  // too small
  EXPECT_THROW(file.read("f32", {{0, 1}, {2, 2}}, out), std::invalid_argument);  // outside
  EXPECT_THROW(file.read("f32", {{0, 2}}, out), std::invalid_argument);          // another rank
  EXPECT_THROW(file.read("f32", {{0, 1}, {0, 2}}, at::empty({2}, at::kLong)), std::invalid_argument);
}

// Every box of a tensor of three dims, against libtorch's own slices, with and without conversion.
TEST(SafetensorsFile, ReadsEveryBox) {
  const ScratchFolder folder;
  const at::Tensor value = at::arange(60, at::kFloat).reshape({3, 4, 5});
  write(folder / "t.safetensors", {{"t", value}}, DType::float32);
  const SafetensorsFile file(folder / "t.safetensors");
  const auto ranges = [](std::int64_t extent) {
    std::vector<layout::Range> list;
    for (std::int64_t start = 0; start <= extent; ++start) {
      for (std::int64_t size = 0; size <= extent - start; ++size) {
        list.push_back({start, size});
      }
    }
    return list;
  };
  for (const auto a : ranges(3)) {
    for (const auto b : ranges(4)) {
      for (const auto c : ranges(5)) {
        const at::Tensor expected =
            value.narrow(0, a.start, a.size).narrow(1, b.start, b.size).narrow(2, c.start, c.size);
        at::Tensor same = at::empty({a.size, b.size, c.size});
        at::Tensor wide = at::empty({a.size, b.size, c.size}, at::kDouble);
        file.read("t", {a, b, c}, same);
        file.read("t", {a, b, c}, wide);
        ASSERT_TRUE(same.equal(expected));
        ASSERT_TRUE(wide.equal(expected.to(at::kDouble)));
      }
    }
  }
}

// Rounding of all pairs of dtypes is libtorch's, on values with ties, infinities and subnormals.
TEST(SafetensorsFile, ConvertsAsLibtorchDoes) {
  const ScratchFolder folder;
  const at::Tensor special =
      at::tensor({0.0, -0.0, 1.0 + std::ldexp(1.0, -8), 1.0 + std::ldexp(3.0, -8), 1.0 + std::ldexp(1.0, -11),
                  65504.0, 65520.0, 1e-40, 1e-310, 1e39, -1e300, 3.3e38, 6e-8, INFINITY},
                 at::kDouble);
  const std::vector<std::pair<DType, at::ScalarType>> dtypes = {{DType::float64, at::kDouble},
                                                                {DType::float32, at::kFloat},
                                                                {DType::bfloat16, at::kBFloat16},
                                                                {DType::float16, at::kHalf}};
  for (const auto& [stored, stored_type] : dtypes) {
    write(folder / "t.safetensors", {{"t", special}}, stored);
    const SafetensorsFile file(folder / "t.safetensors");
    for (const auto& [unused, type] : dtypes) {
      EXPECT_TRUE(read(file, "t", type).equal(special.to(stored_type).to(type)))
          << name_of(stored) << " to " << type;
    }
  }
}

TEST(SafetensorsFile, KeepsNotANumber) {
  const ScratchFolder folder;
  write(folder / "t.safetensors", {{"t", at::full({3}, std::nan(""))}}, DType::float32);
  const SafetensorsFile file(folder / "t.safetensors");
  EXPECT_TRUE(read(file, "t", at::kBFloat16).isnan().all().item<bool>());
}

// [65536, 50257] has more than 2^31 elements; a sparse file of its 13 174 571 008 bytes takes no space.
TEST(SafetensorsFile, HoldsMoreThan31BitsOfElements) {
  const ScratchFolder folder;
  const std::string path = folder.file(
      "t.safetensors",
      safetensors_bytes(R"({"t":{"dtype":"F32","shape":[65536,50257],"data_offsets":[0,13174571008]}})", 0));
  const auto data = static_cast<std::int64_t>(std::filesystem::file_size(path));
  ASSERT_EQ(::truncate(path.c_str(), data + 13'174'571'008), 0);
  {
    std::fstream last(path, std::ios::binary | std::ios::in | std::ios::out);
    const float value = 42.5F;
    last.seekp(data + 13'174'571'008 - 4);
    last.write(reinterpret_cast<const char*>(&value), 4);
    last.seekp(data + (std::int64_t{42731} * 50257 + 7) * 4);
    last.write(reinterpret_cast<const char*>(&value), 4);
  }
  const SafetensorsFile file(path);
  at::Tensor out = at::full({2, 2}, -1.0);
  file.read("t", {{65534, 2}, {50255, 2}}, out);
  EXPECT_TRUE(out.equal(at::tensor({0.0F, 0.0F, 0.0F, 42.5F}).reshape({2, 2})));
  file.read("t", {{42731, 1}, {5, 4}}, out);
  EXPECT_TRUE(out.equal(at::tensor({0.0F, 0.0F, 42.5F, 0.0F}).reshape({2, 2})));
}

TEST(SafetensorsFile, RefusesMissingFiles) {
  const ScratchFolder folder;
  EXPECT_THROW(SafetensorsFile(folder / "none.safetensors"), RequestError);
  EXPECT_THROW(SafetensorsFile(folder.path()), RequestError);
  EXPECT_THROW(SafetensorsFile("/dev/zero"), RequestError);
  EXPECT_THROW(SafetensorsFile(folder.file("empty.safetensors", "")), RequestError);
}

// Damage in the whole file, read through: what opens can also be read.
TEST(SafetensorsFile, SurvivesRandomDamage) {
  const ScratchFolder folder;
  const std::string intact = contents(std::string(NDMESH_TEST_DATA) + "/safetensors/mixed.safetensors");
  std::mt19937 random(2);
  for (int trial = 0; trial < 1000; ++trial) {
    std::string damaged = intact;
    damaged[random() % 416] = static_cast<char>(random());
    try {
      const SafetensorsFile file(folder.file("t.safetensors", damaged));
      for (const auto& [name, tensor] : file.tensors()) {
        if (file.bytes(name).size() < 1000 && tensor.dtype == DType::float32) {
          read(file, name, at::kDouble);
        }
      }
    } catch (const RequestError&) {
    }
  }
}

TEST(WriteSafetensors, IsByteForByteTheStatedFormat) {
  const ScratchFolder folder;
  write_safetensors(folder / "t.safetensors", {{"b", {2}}, {"a", {}}}, DType::bfloat16, {{"format", "pt"}},
                    [](const std::string& name) {
                      return name == "a" ? at::tensor(1.0F).squeeze() : at::tensor({-2.0F, 0.5F});
                    });
  std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
      R"("a":{"dtype":"BF16","shape":[],"data_offsets":[4,6]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(contents(folder / "t.safetensors"),
            safetensors_bytes(header, 0) + std::string("\x00\xc0\x00\x3f\x80\x3f", 6));
}

// o_proj cut by columns, as tensor parallelism has it: each part is written dense, and together they are the
// original.
TEST(WriteSafetensors, WritesViewsAsTheirOwnElements) {
  const ScratchFolder folder;
  const at::Tensor full = at::arange(48 * 96, at::kFloat).reshape({48, 96});
  write(folder / "t.safetensors",
        {{"left", full.narrow(1, 0, 48)}, {"right", full.narrow(1, 48, 48)}, {"turned", full.t()}},
        DType::float32);
  const SafetensorsFile file(folder / "t.safetensors");
  EXPECT_EQ(file.bytes("left").size(), 48u * 48 * 4);
  EXPECT_TRUE(at::cat({read(file, "left", at::kFloat), read(file, "right", at::kFloat)}, 1).equal(full));
  EXPECT_TRUE(read(file, "turned", at::kFloat).equal(full.t()));
}

TEST(WriteSafetensors, RefusesWhatCannotBeReadBack) {
  const ScratchFolder folder;
  const auto fill = [](const std::string&) { return at::zeros({2}); };
  EXPECT_THROW(write_safetensors(folder / "t", {{"a", {2}}, {"a", {2}}}, DType::float32, {}, fill),
               std::invalid_argument);
  EXPECT_THROW(write_safetensors(folder / "t", {{"__metadata__", {2}}}, DType::float32, {}, fill),
               std::invalid_argument);
  EXPECT_THROW(write_safetensors(folder / "t", {{"a", {3}}}, DType::float32, {}, fill),
               std::invalid_argument);
  EXPECT_THROW(write_safetensors(folder / "t", {{"a", {-1}}}, DType::float32, {}, fill),
               std::invalid_argument);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

std::string failure(const std::function<void()>& action) {
  try {
    action();
  } catch (const RunError& error) {
    return error.what();
  }
  return "nothing failed";
}

/// Files of this process end at `bytes` for as long as this lives, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    set(bytes);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  void set(rlim_t bytes) const {
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(WriteSafetensors, KeepsTheOlderFileWhenThereIsNoSpace) {
  const ScratchFolder folder;
  const auto path = folder / "t.safetensors";
  write(path, {{"t", at::ones({100})}}, DType::float32);
  const std::string before = contents(path);
  {
    const FileSizeLimit limit(2000);  // found when the space is taken, before anything is computed
    int filled = 0;
    const std::string message = failure([&] {
      write_safetensors(path, {{"t", {1000}}}, DType::float32, {}, [&](const std::string&) {
        ++filled;
        return at::zeros({1000});
      });
    });
    EXPECT_THAT(message,
                HasSubstr(path.string() + ": could not take the space for it: File too large (0 of 4"));
    EXPECT_EQ(filled, 0);
  }
  {
    const FileSizeLimit limit(100'000);  // found while writing
    const std::string message = failure([&] {
      write_safetensors(path, {{"t", {1000}}}, DType::float32, {}, [&](const std::string&) {
        limit.set(2000);
        return at::zeros({1000});
      });
    });
    EXPECT_THAT(message, HasSubstr("could not write it: File too large (2000 of 4"));
  }
  EXPECT_EQ(contents(path), before);
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".partial"));
  EXPECT_THAT(failure([&] {
                write(folder / "none/t.safetensors", {{"t", at::ones({1})}}, DType::float32);
              }),
              HasSubstr("could not create it: No such file"));
}

// A disk with room for one and a half files.
TEST(WriteSafetensors, KeepsTheOlderFileOnAFullDisk) {
  const ScratchFolder folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1200k") != 0) {
    GTEST_SKIP() << "mounting a small disk needs root";
  }
  const auto path = folder / "t.safetensors";
  write(path, {{"t", at::ones({200, 1000})}}, DType::float32);
  const std::string before = contents(path);
  const std::string message = failure([&] { write(path, {{"t", at::zeros({200, 1000})}}, DType::float32); });
  EXPECT_THAT(message, HasSubstr("No space left on device"));
  EXPECT_EQ(contents(path), before);
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".partial"));
  ::umount(folder.path().c_str());
}

}  // namespace
}  // namespace ndmesh::train
