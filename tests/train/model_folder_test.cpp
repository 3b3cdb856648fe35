#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <random>

#include "ndmesh/base/error.h"
#include "ndmesh/base/hash.h"
#include "ndmesh/model/config.h"
#include "ndmesh/train/safetensors.h"
#include "train/scratch_folder.h"

namespace ndmesh::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

json tiny_config(bool tied) {
  return {{"model_type", "llama"},    {"hidden_size", 48},        {"num_hidden_layers", 5},
          {"num_attention_heads", 6}, {"num_key_value_heads", 2}, {"head_dim", 16},
          {"intermediate_size", 130}, {"vocab_size", 257},        {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},     {"rope_theta", 10000.0},    {"tie_word_embeddings", tied},
          {"torch_dtype", "float32"}};
}

model::ModelSpec tiny(bool tied = false) {
  return model::spec_from_config(tiny_config(tied).dump(), "tiny");
}

/// Values that depend on the name, the place and `version`, exact in bfloat16.
at::Tensor value_of(const model::ParameterSpec& parameter, double version = 0) {
  const auto offset = static_cast<double>(seed_for(0, parameter.name) % 64);
  return (at::arange(parameter.elements(), at::kFloat).remainder(61) + offset + version)
      .reshape(parameter.shape);
}

FillTensor fill_of(const model::ModelSpec& spec, double version = 0) {
  return [spec, version](const std::string& name) {
    for (const model::ParameterSpec& parameter : spec.parameters()) {
      if (parameter.name == name) {
        return value_of(parameter, version);
      }
    }
    throw std::out_of_range(name);
  };
}

/// Whether every parameter of the folder is that of `version`.
bool holds(const fs::path& folder, const model::ModelSpec& spec, double version = 0) {
  const ModelWeights weights(folder, spec);
  for (const model::ParameterSpec& parameter : spec.parameters()) {
    layout::Box box;
    for (const std::int64_t extent : parameter.shape) {
      box.push_back({0, extent});
    }
    at::Tensor out = at::empty(parameter.shape);
    weights.read(parameter.name, box, out);
    if (!out.equal(value_of(parameter, version))) {
      return false;
    }
  }
  return true;
}

std::string refusal(const fs::path& folder, const model::ModelSpec& spec) {
  try {
    const ModelWeights weights(folder, spec);
  } catch (const RequestError& error) {
    return error.what();
  }
  return "accepted";
}

/// tiny in three shards: 300 000 bytes each at most.
ScratchFolder& write_three_shards(ScratchFolder& scratch) {
  const model::ModelSpec spec = tiny();
  write_model_folder(scratch / "m", spec, DType::float32, fill_of(spec), 300'000);
  return scratch;
}

void write_one(const fs::path& file, const std::string& name, const at::Tensor& value,
               DType dtype = DType::float32) {
  write_safetensors(file, {{name, value.sizes().vec()}}, dtype, {},
                    [&](const std::string&) { return value; });
}

TEST(ModelFolder, ReadsBackEveryDtypeAndShardSize) {
  const model::ModelSpec spec = tiny();
  for (const auto& [dtype, shard_bytes] :
       {std::pair(DType::float32, 1'000'000'000), std::pair(DType::float32, 1),
        std::pair(DType::bfloat16, 300'000), std::pair(DType::float64, 300'000)}) {
    const ScratchFolder scratch;
    write_model_folder(scratch / "m", spec, dtype, fill_of(spec), shard_bytes);
    EXPECT_TRUE(holds(scratch / "m", spec));
    const ModelWeights weights(scratch / "m", model::spec_from_folder(scratch / "m"));
    EXPECT_EQ(weights.stored_dtype(), dtype);
    EXPECT_TRUE(weights.warnings().empty());
    EXPECT_FALSE(fs::exists(scratch / "m.partial"));
  }
}

TEST(ModelFolder, IndexCountsTheBytesOfTheTensors) {
  for (const auto& [tied, bytes] : {std::pair(false, 720960), std::pair(true, 671616)}) {
    const ScratchFolder scratch;
    const model::ModelSpec spec = tiny(tied);
    write_model_folder(scratch / "m", spec, DType::float32, fill_of(spec), 300'000);
    const json index = json::parse(contents(scratch / "m/model.safetensors.index.json"));
    EXPECT_EQ(index["metadata"]["total_size"], bytes);
    EXPECT_EQ(index["weight_map"].size(), spec.parameters().size());
    EXPECT_EQ(index["weight_map"].contains("lm_head.weight"), !tied);
    EXPECT_EQ(index["weight_map"]["model.embed_tokens.weight"], "model-00001-of-00003.safetensors");
    EXPECT_EQ(SafetensorsFile(scratch / "m/model-00001-of-00003.safetensors").metadata().at("format"), "pt");
    EXPECT_TRUE(holds(scratch / "m", spec));
  }
}

TEST(ModelFolder, ReplacesAModelAndKeepsOtherFiles) {
  ScratchFolder scratch;
  const fs::path folder = write_three_shards(scratch) / "m";
  std::ofstream(folder / "tokenizer.json") << "{}";
  fs::create_directories(folder / "notes");
  std::ofstream(folder / "notes/read.me") << "mine";
  const model::ModelSpec spec = tiny(true);
  write_model_folder(folder / "", spec, DType::float32, fill_of(spec, 1));
  EXPECT_TRUE(holds(folder, spec, 1));
  EXPECT_TRUE(fs::exists(folder / "tokenizer.json"));
  EXPECT_EQ(contents(folder / "notes/read.me"), "mine");
  EXPECT_FALSE(fs::exists(folder / "model-00001-of-00003.safetensors"));
  EXPECT_FALSE(fs::exists(folder / "model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(scratch / "m.partial"));
}

TEST(ModelFolder, RefusesToReplaceAFile) {
  const ScratchFolder scratch;
  const model::ModelSpec spec = tiny();
  EXPECT_THROW(write_model_folder(scratch.file("m", "text"), spec, DType::float32, fill_of(spec)),
               RequestError);
  EXPECT_EQ(contents(scratch / "m"), "text");
}

TEST(ModelFolder, KeepsTheOlderFolderWhenFillingFails) {
  const ScratchFolder scratch;
  const model::ModelSpec spec = tiny();
  write_model_folder(scratch / "m", spec, DType::float32, fill_of(spec, 1));
  const FillTensor broken = [&](const std::string& name) -> at::Tensor {
    if (name == "model.norm.weight") {
      throw RunError("rank 2 is gone");
    }
    return fill_of(spec, 2)(name);
  };
  EXPECT_THROW(write_model_folder(scratch / "m", spec, DType::float32, broken, 300'000), RunError);
  EXPECT_TRUE(holds(scratch / "m", spec, 1));
  EXPECT_FALSE(fs::exists(scratch / "m.partial"));
}

/// Writes version after version into `folder` until it is killed. Runs in a forked child.
[[noreturn]] void write_forever(const fs::path& folder, const model::ModelSpec& spec) {
  at::set_num_threads(1);  // the pool's threads are not in the child
  for (int version = 1;; version = version % 60 + 1) {
    write_model_folder(folder, spec, DType::float32, fill_of(spec, version), 300'000);
  }
}

// A save that is killed at any moment leaves the folder of some version, whole, and there is a folder at any
// moment.
TEST(ModelFolder, IsWholeWheneverTheWriterIsKilled) {
  const ScratchFolder scratch;
  const model::ModelSpec spec = tiny();
  const fs::path folder = scratch / "m";
  write_model_folder(folder, spec, DType::float32, fill_of(spec, 0), 300'000);
  std::mt19937 random(3);
  for (int trial = 0; trial < 20; ++trial) {
    const pid_t child = ::fork();
    if (child == 0) {
      write_forever(folder, spec);
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 30'000);
    bool always_there = true;
    while (std::chrono::steady_clock::now() < end) {
      always_there = always_there && fs::exists(folder / "config.json");
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ASSERT_TRUE(always_there) << "trial " << trial;
    const ModelWeights weights(folder, spec);
    at::Tensor first = at::empty({1});
    weights.read("model.norm.weight", {{0, 1}}, first);
    const double version = first.item<double>() - static_cast<double>(seed_for(0, "model.norm.weight") % 64);
    ASSERT_TRUE(holds(folder, spec, version)) << "trial " << trial << ", version " << version;
  }
  write_model_folder(folder, spec, DType::float32, fill_of(spec, 0));  // over what the last kill left
  EXPECT_TRUE(holds(folder, spec, 0));
  EXPECT_FALSE(fs::exists(scratch / "m.partial"));
}

TEST(ModelWeights, NamesMissingShards) {
  ScratchFolder scratch;
  const fs::path folder = write_three_shards(scratch) / "m";
  fs::remove(folder / "model-00002-of-00003.safetensors");
  EXPECT_THAT(refusal(folder, tiny()),
              AllOf(HasSubstr("1 of the 3 files that model.safetensors.index.json lists are missing"),
                    HasSubstr("\"model-00002-of-00003.safetensors\""), HasSubstr("fetch it again")));
}

TEST(ModelWeights, NamesAnIndexOfAnotherVersion) {
  ScratchFolder scratch;
  const fs::path folder = write_three_shards(scratch) / "m";
  json index = json::parse(contents(folder / "model.safetensors.index.json"));
  for (auto& file : index["weight_map"]) {
    file = "model-00001-of-00030.safetensors";
  }
  scratch.file("m/model.safetensors.index.json", index.dump());
  EXPECT_THAT(refusal(folder, tiny()), AllOf(HasSubstr("1 of the 1 files"), HasSubstr("00001-of-00030"),
                                             HasSubstr("the index is another version's")));
}

TEST(ModelWeights, NamesTensorsThatTheIndexPromises) {
  ScratchFolder scratch;
  const fs::path folder = write_three_shards(scratch) / "m";
  json index = json::parse(contents(folder / "model.safetensors.index.json"));
  index["weight_map"]["model.norm.weight"] = "model-00001-of-00003.safetensors";
  scratch.file("m/model.safetensors.index.json", index.dump());
  EXPECT_THAT(
      refusal(folder, tiny()),
      HasSubstr("\"model-00001-of-00003.safetensors\" holds tensor \"model.norm.weight\", but it does not"));
}

TEST(ModelWeights, IgnoresAStrayFileBesideTheIndexAndSaysSo) {
  ScratchFolder scratch;
  const fs::path folder = write_three_shards(scratch) / "m";
  write_one(folder / "model.safetensors", "x", at::ones({4}), DType::float16);
  const ModelWeights weights(folder, tiny());
  EXPECT_THAT(
      weights.warnings(),
      testing::ElementsAre(HasSubstr("\"model.safetensors\" is ignored: the index does not list it")));
  EXPECT_TRUE(holds(folder, tiny()));
}

TEST(ModelWeights, NamesTheTensorsOfAMissingLayer) {
  ScratchFolder scratch;
  const fs::path folder = write_three_shards(scratch) / "m";
  model::ModelSpec deeper = tiny();
  deeper.layers = 6;
  EXPECT_THAT(refusal(folder, deeper),
              AllOf(HasSubstr("tensor model.layers.5.mlp.down_proj.weight of shape [48, 130] is missing"),
                    HasSubstr("model.layers.5.input_layernorm.weight"), Not(HasSubstr("model.layers.4."))));
  model::ModelSpec shallower = tiny();
  shallower.layers = 4;
  EXPECT_THAT(refusal(folder, shallower),
              HasSubstr("tensor \"model.layers.4.mlp.down_proj.weight\" has no place"));
}

TEST(ModelWeights, ReadsShardsWithoutAnIndex) {
  ScratchFolder scratch;
  const fs::path folder = write_three_shards(scratch) / "m";
  fs::remove(folder / "model.safetensors.index.json");
  EXPECT_TRUE(holds(folder, tiny()));
  fs::copy(folder / "model-00003-of-00003.safetensors", folder / "model-00004-of-00004.safetensors");
  EXPECT_THAT(
      refusal(folder, tiny()),
      HasSubstr("tensor \"lm_head.weight\" is in model-00004-of-00004.safetensors and in another file"));
}

TEST(ModelWeights, NamesBothShapes) {
  ScratchFolder scratch;
  const fs::path folder = write_three_shards(scratch) / "m";
  model::ModelSpec other = tiny();
  other.kv_heads = 3;
  EXPECT_THAT(
      refusal(folder, other),
      AllOf(
          HasSubstr(
              "model.layers.0.self_attn.k_proj.weight has shape [32, 48], but config.json makes it [48, 48]"),
          HasSubstr("model.layers.4.self_attn.v_proj.weight")));
}

TEST(ModelWeights, RefusesWeightsThatAreNotFloating) {
  const ScratchFolder scratch;
  const model::ModelSpec spec = tiny();
  std::vector<TensorToWrite> tensors;
  for (const auto& parameter : spec.parameters()) {
    tensors.push_back({parameter.name, parameter.shape});
  }
  write_safetensors(scratch / "model.safetensors", tensors, DType::int8, {}, fill_of(spec));
  EXPECT_THAT(refusal(scratch.path(), spec), HasSubstr("tensor model.norm.weight has dtype I8"));
}

TEST(ModelWeights, TiedHeadMayBeStoredIfItIsTheTable) {
  const ScratchFolder scratch;
  const model::ModelSpec spec = tiny(true);
  write_model_folder(scratch / "m", spec, DType::float32, fill_of(spec));
  EXPECT_TRUE(ModelWeights(scratch / "m", spec).warnings().empty());

  fs::remove(scratch / "m/model.safetensors.index.json");
  fs::rename(scratch / "m/model.safetensors", scratch / "m/model-1.safetensors");
  const at::Tensor table = value_of(spec.parameters().front());
  write_one(scratch / "m/model-2.safetensors", "lm_head.weight", table);
  EXPECT_THAT(ModelWeights(scratch / "m", spec).warnings(),
              testing::ElementsAre(HasSubstr("it equals model.embed_tokens.weight")));

  at::Tensor other = table.clone();
  other[256][47] += 1;
  write_one(scratch / "m/model-2.safetensors", "lm_head.weight", other);
  EXPECT_THAT(refusal(scratch / "m", spec),
              AllOf(HasSubstr("lm_head.weight differs from model.embed_tokens.weight"),
                    HasSubstr("tie_word_embeddings: true")));
}

TEST(ModelWeights, UntiedModelNeedsItsHead) {
  const ScratchFolder scratch;
  const model::ModelSpec tied = tiny(true);
  write_model_folder(scratch / "m", tied, DType::float32, fill_of(tied));
  EXPECT_THAT(refusal(scratch / "m", tiny(false)),
              AllOf(HasSubstr("tensor lm_head.weight of shape [257, 48] is missing"),
                    HasSubstr("set tie_word_embeddings: true")));
}

/// A stored value, exactly, whatever the files' dtype and the dtype that computes.
TEST(ModelWeights, HalfPrecisionShardsAreReadIntoEveryDtype) {
  const model::ModelSpec spec = tiny();
  for (const DType stored : {DType::bfloat16, DType::float16}) {
    const ScratchFolder scratch;
    write_model_folder(scratch / "m", spec, stored, fill_of(spec), 100'000);
    ASSERT_TRUE(fs::exists(scratch / "m/model-00002-of-00004.safetensors"));
    const ModelWeights weights(scratch / "m", model::spec_from_folder(scratch / "m"));
    EXPECT_EQ(weights.stored_dtype(), stored);
    EXPECT_TRUE(weights.warnings().empty());
    for (const at::ScalarType compute : {at::kDouble, at::kFloat, at::kBFloat16}) {
      for (const model::ParameterSpec& parameter : spec.parameters()) {
        layout::Box box;
        for (const std::int64_t extent : parameter.shape) {
          box.push_back({0, extent});
        }
        at::Tensor out = at::empty(parameter.shape, compute);
        weights.read(parameter.name, box, out);
        EXPECT_TRUE(out.equal(value_of(parameter).to(compute))) << parameter.name;
      }
    }
  }
}

TEST(ModelWeights, FilesDecideTheDtype) {
  const ScratchFolder scratch;
  model::ModelSpec spec = tiny();
  write_model_folder(scratch / "m", spec, DType::bfloat16, fill_of(spec));
  spec.stored_dtype = DType::float32;
  const ModelWeights weights(scratch / "m", spec);
  EXPECT_EQ(weights.stored_dtype(), DType::bfloat16);
  EXPECT_THAT(
      weights.warnings(),
      testing::ElementsAre(HasSubstr("config.json says dtype float32, the weights are stored as bfloat16")));
}

TEST(ModelWeights, RefusesHostileIndexes) {
  ScratchFolder scratch;
  const fs::path folder = write_three_shards(scratch) / "m";
  const auto with_index = [&](const std::string& text) {
    scratch.file("m/model.safetensors.index.json", text);
    return refusal(folder, tiny());
  };
  EXPECT_THAT(with_index(R"({"weight_map":{"a":"../../etc/x.safetensors"}})"),
              HasSubstr("a *.safetensors file of the same folder"));
  EXPECT_THAT(with_index(R"({"weight_map":{"a":"pytorch_model.bin"}})"),
              HasSubstr("a *.safetensors file of the same folder"));
  EXPECT_THAT(with_index(R"({"weight_map":{"a":7}})"), HasSubstr("a *.safetensors file of the same folder"));
  EXPECT_THAT(with_index(R"({"weight_map":[]})"), HasSubstr("has no object weight_map"));
  EXPECT_THAT(with_index("[]"), HasSubstr("has no object weight_map"));
  EXPECT_THAT(with_index("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(with_index(R"({"weight_map":{}})"),
              HasSubstr("tensor lm_head.weight of shape [257, 48] is missing"));
}

TEST(ModelWeights, RefusesFoldersWithoutWeights) {
  const ScratchFolder scratch;
  EXPECT_THAT(refusal(scratch / "none", tiny()), HasSubstr("No such file"));
  EXPECT_THAT(refusal(scratch.path(), tiny()), HasSubstr("holds no weights"));
  scratch.file("pytorch_model.bin", "");
  EXPECT_THAT(refusal(scratch.path(), tiny()), HasSubstr("holds pytorch_model.bin, which is not read"));
}

TEST(ModelWeights, RefusesATruncatedShard) {
  ScratchFolder scratch;
  const fs::path folder = write_three_shards(scratch) / "m";
  const fs::path shard = folder / "model-00002-of-00003.safetensors";
  const std::string bytes = contents(shard);
  scratch.file("m/model-00002-of-00003.safetensors", bytes.substr(0, bytes.size() - 1));
  EXPECT_THAT(refusal(folder, tiny()), AllOf(HasSubstr("model-00002-of-00003.safetensors: tensor"),
                                             HasSubstr("the file is cut short")));
  scratch.file("m/model-00002-of-00003.safetensors", "");
  EXPECT_THAT(refusal(folder, tiny()), HasSubstr("0 bytes are too few"));
}

TEST(ModelWeights, IgnoresStoredRotaryFrequencies) {
  ScratchFolder scratch;
  const fs::path folder = write_three_shards(scratch) / "m";
  fs::remove(folder / "model.safetensors.index.json");
  write_one(folder / "model-old.safetensors", "model.layers.0.self_attn.rotary_emb.inv_freq", at::ones({8}));
  EXPECT_THAT(ModelWeights(folder, tiny()).warnings(),
              testing::ElementsAre(HasSubstr("inv_freq\" is ignored")));
}

/// The published gpt2 has no "transformer." in front of its names, and a mask in every layer.
TEST(ModelWeights, NamesMayLackTheTrunks) {
  const ScratchFolder scratch;
  const model::ModelSpec spec = model::spec_from_config(
      R"({"model_type": "gpt2", "n_embd": 12, "n_layer": 2, "n_head": 2, "n_positions": 8, "vocab_size": 13,
          "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0})",
      "gpt2");
  const std::string trunk = "transformer.";
  std::vector<TensorToWrite> tensors = {{"h.1.attn.bias", {1, 1, 8, 8}}};
  for (const model::ParameterSpec& parameter : spec.parameters()) {
    tensors.push_back({parameter.name.substr(trunk.size()), parameter.shape});
  }
  fs::create_directories(scratch / "m");
  const FillTensor fill = fill_of(spec);
  write_safetensors(scratch / "m/model.safetensors", tensors, DType::float32, {},
                    [&](const std::string& name) {
                      return name == "h.1.attn.bias" ? at::ones({1, 1, 8, 8}) : fill(trunk + name);
                    });
  EXPECT_TRUE(holds(scratch / "m", spec));
  EXPECT_TRUE(ModelWeights(scratch / "m", spec).warnings().empty());
}

}  // namespace
}  // namespace ndmesh::train
