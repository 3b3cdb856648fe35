#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace ndmesh::testing_cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

/// Refused: status 2, all of `parts` on standard error, nothing on standard output.
void expect_refused(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
  const Result result = run(arguments);
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(result.out, IsEmpty());
  for (const std::string& part : parts) {
    EXPECT_THAT(result.err, HasSubstr(part));
  }
}

Json json_of(const std::vector<std::string>& arguments) {
  const Result result = run(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  return Json::parse(result.out, nullptr, false);
}

const char* const small_config =
    R"({"model_type":"llama","hidden_size":48,"num_hidden_layers":5,"num_attention_heads":6,"num_key_value_heads":2,
        "head_dim":16,"intermediate_size":130,"vocab_size":257,"max_position_embeddings":512})";

TEST(Usage, WithoutACommandItSaysWhichThereAre) {
  expect_refused({}, {"ndmesh needs a command", "inspect", "help"});
  expect_refused({"inspect"}, {"ndmesh inspect needs a command: model, mesh, layout"});
}

TEST(Usage, UnknownCommandsAndOptionsNameTheNearest) {
  expect_refused({"inspekt"}, {"unknown command \"inspekt\"; did you mean inspect?"});
  expect_refused({"inspekt", "--help"}, {"unknown command \"inspekt\"; did you mean inspect?"});
  expect_refused({"inspect", "modle", "llama-1m"}, {"did you mean model?"});
  expect_refused({"inspect", "model", "llama-1m", "--jsn"},
                 {"unknown option \"--jsn\" of ndmesh inspect model; did you mean --json?"});
  expect_refused({"--verson"}, {"did you mean --version?"});
  expect_refused({"inspect", "layout", "llama-1m", "--rank", "one"}, {"ndmesh inspect layout", "--rank"});
  expect_refused({"inspect", "layout", "llama-1m", "--mesh"}, {"--mesh"});
}

TEST(Usage, CommandsThatAreNotBuiltAreRefusedByName) {
  for (const char* command :
       {"dryrun", "bench", "scale", "tokenize", "convert", "import", "export", "serve", "load", "report"}) {
    expect_refused({command, "x"}, {std::string("ndmesh ") + command + " is not built"});
  }
  expect_refused({"inspect", "hang"}, {"ndmesh inspect hang is not built"});
}

TEST(Usage, VersionAndHelpSucceed) {
  EXPECT_THAT(run({"--version"}).out, testing::MatchesRegex("ndmesh [0-9.]+\n"));
  EXPECT_EQ(run({"--version"}).status, 0);
  const Result help = run({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("inspect"));
}

TEST(Help, ShowsCommandsKeysAndSections) {
  EXPECT_THAT(run({"help"}).out, testing::AllOf(HasSubstr("Usage: ndmesh "), HasSubstr("Sections of a job")));
  EXPECT_THAT(run({"help", "inspect", "layout"}).out, HasSubstr("Usage: ndmesh inspect layout"));
  EXPECT_THAT(run({"help", "mesh.tp_size"}).out, HasSubstr("integer; 1 to 1048576; default 1"));
  EXPECT_THAT(run({"help", "train"}).out, HasSubstr("train.steps"));
  EXPECT_EQ(json_of({"help", "mesh.tp_size", "--json"})[0]["default"], "1");
  EXPECT_GT(json_of({"help", "--json"}).size(), 40U);
  expect_refused({"help", "mesh.tp_sise"}, {"did you mean mesh.tp_size?"});
  expect_refused({"help", "inspekt"}, {"did you mean inspect?"});
  expect_refused({"help", "inspect", "nothing"}, {"inspect nothing"});
}

TEST(InspectModel, CountsPresetsFoldersConfigsAndJobs) {
  EXPECT_EQ(json_of({"inspect", "model", "llama-3-8b", "--json"})["parameter_count"], 8030261248);
  const std::string config = file_with("model/config.json", small_config);
  const std::string folder = std::filesystem::path(config).parent_path();
  for (const std::string& source : {config, folder, file_with("a.yaml", "model: {path: " + folder + "}\n")}) {
    const Json model = json_of({"inspect", "model", source, "--json"});
    EXPECT_EQ(model["parameter_count"], 180240) << source;
    EXPECT_EQ(model["bytes"]["bfloat16"], 360480);
    std::int64_t sum = 0;
    for (const Json& group : model["parameters"]) {
      sum += group["elements"].get<std::int64_t>();
    }
    EXPECT_EQ(sum, 180240);
  }
  EXPECT_THAT(run({"inspect", "model", "llama-3-8b"}).out,
              testing::AllOf(HasSubstr("8,030,261,248 parameters"), HasSubstr("bfloat16 14.96 GiB")));
}

TEST(InspectModel, ListsFamiliesWithoutASource) {
  const Json families = json_of({"inspect", "model", "--json"});
  EXPECT_THAT(families["run"], testing::Contains("gemma2"));
  EXPECT_THAT(families["planned"], testing::Contains("mixtral"));
  EXPECT_THAT(families["planned"], testing::Not(testing::Contains("gemma2")));
  EXPECT_THAT(run({"inspect", "model"}).out, HasSubstr("that run:  llama, mistral"));
}

TEST(InspectModel, ExpertsEstimatesAndMultiTokenPrediction) {
  const Json mixtral = json_of({"inspect", "model", "mixtral-8x7b", "--json"});
  EXPECT_EQ(mixtral["parameter_count"], 46702792704);
  EXPECT_EQ(mixtral["active_parameter_count"], 12879925248);
  EXPECT_EQ(mixtral["model"]["experts"]["count"], 8);
  EXPECT_EQ(mixtral["estimated"], false);
  EXPECT_THAT(
      run({"inspect", "model", "mixtral-8x7b"}).out,
      testing::AllOf(HasSubstr("8 experts of ffn 14336 in 32 layers, 2 for a token: 12,879,925,248 "
                               "parameters active"),
                     HasSubstr("experts.*.w1.weight"), HasSubstr("family mixtral is planned, not run")));

  const std::string config =
      file_with("v3.json", R"({"model_type": "deepseek_v3", "num_nextn_predict_layers": 1})");
  const Json deepseek = json_of({"inspect", "model", config, "--json"});
  EXPECT_EQ(
      deepseek["parameter_count"].get<std::int64_t>() - deepseek["mtp_parameter_count"].get<std::int64_t>(),
      671026419200);
  EXPECT_EQ(deepseek["model"]["latent"]["kv_rank"], 512);

  for (const std::vector<std::string>& words : {std::vector<std::string>{"70B"}, {"model.size=70B"}}) {
    std::vector<std::string> call = {"inspect", "model", "--json"};
    call.insert(call.end(), words.begin(), words.end());
    EXPECT_EQ(json_of(call)["bytes"]["bfloat16"], 140'000'000'000) << words.front();
    EXPECT_EQ(json_of(call)["estimated"], true);
  }
  EXPECT_THAT(run({"inspect", "model", "70B"}).out,
              testing::AllOf(HasSubstr("the shape is estimated"), HasSubstr("(140.00 GB)")));
  expect_refused({"inspect", "model", "70B", "model.size=70X"}, {"model.size is \"70X\""});
}

TEST(InspectModel, FlopsAreThoseOfTheSequence) {
  const std::string config = file_with("seven.json", R"({"model_type": "llama"})");
  const Json model = json_of({"inspect", "model", config, "batch.seq_len=4096", "--json"});
  EXPECT_EQ(model["flops_per_token"]["weights"], 39642464256.0);
  EXPECT_EQ(model["flops_per_token"]["attention"], 3221225472.0);
}

TEST(InspectModel, RefusesWhatIsNoModel) {
  expect_refused({"inspect", "model", "llama-3-8"},
                 {"\"llama-3-8\" is no job file", "did you mean llama-3-8b?"});
  expect_refused({"inspect", "model", "llama-1m", "llama-28m"}, {"one SOURCE is inspected at a time"});
  expect_refused({"inspect", "model", file_with("empty/x", "")},
                 {"model.path, model.preset or model.size must be given"});
  expect_refused({"inspect", "model", std::filesystem::path(file_with("empty/x", "")).parent_path()},
                 {"config.json", "cannot be read"});
  expect_refused({"inspect", "model", "/dev/zero"}, {"is not a regular file"});
}

TEST(InspectMesh, TakesMeshNotationJobsAndOverrides) {
  EXPECT_EQ(run({"inspect", "mesh", "--mesh", "dp_shard=2,tp=2"}).status, 0);
  EXPECT_EQ(json_of({"inspect", "mesh", "--mesh", "dp_shard=2,tp=2", "--json"})["world"], 4);
  const std::string job = file_with("b.yaml", "model: {preset: llama-1m}\nmesh: {dp_shard_size: 3}\n");
  EXPECT_EQ(json_of({"inspect", "mesh", job, "--json"})["world"], 3);
  EXPECT_EQ(json_of({"inspect", "mesh", job, "mesh.dp_shard_size=6", "--json"})["world"], 6);
  EXPECT_EQ(json_of({"inspect", "mesh", job, "--mesh", "1", "--json"})["world"], 1);
  expect_refused({"inspect", "mesh", "--mesh", "dp_shard=2,tq=2"}, {"unknown axis \"tq\""});
  expect_refused({"inspect", "mesh", "--mesh", "dp_shard=0"}, {"dp_shard"});
}

TEST(InspectLayout, TakesMeshAndRank) {
  EXPECT_EQ(json_of({"inspect", "layout", "llama-1m", "--mesh", "dp_shard=2,tp=2", "--json"})["world"], 4);
  const auto norms_summed_over = [&](const char* sequence) {
    const Json layout = json_of({"inspect", "layout", "llama-1m", "mesh.tp_size=2", sequence, "--json"});
    for (const Json& parameter : layout["parameters"]) {
      if (parameter["name"] == "model.norm.weight") return parameter["gradient_reduction_axes"].dump();
    }
    return std::string();
  };
  EXPECT_EQ(norms_summed_over("tensor.sequence_parallel=true"), R"(["tp"])");
  EXPECT_EQ(norms_summed_over("tensor.sequence_parallel=false"), "[]");
  EXPECT_EQ(run({"inspect", "layout", "llama-1m", "mesh.dp_shard_size=2", "--rank", "1"}).status, 0);
  expect_refused({"inspect", "layout", "llama-1m", "--mesh", "dp_shard=2", "--rank", "7"}, {"7", "0 to 1"});
  expect_refused({"inspect", "layout", "llama-1m", "--mesh", "tp=3"}, {"mesh.tp_size", "1, 2, 4"});
  expect_refused({"inspect", "layout", "--mesh", "tp=2"}, {"a SOURCE is needed"});
  // Each of the 2 KV heads of a fused matrix on 2 of 4 ranks, each query head on one.
  const std::string phi = file_with("phi3.json", R"({"model_type": "phi3", "num_key_value_heads": 2})");
  EXPECT_EQ(run({"inspect", "layout", phi, "--mesh", "tp=4", "--json"}).status, 0);
  EXPECT_THAT(run({"inspect", "layout", "mixtral-8x7b", "--mesh", "tp=2"}).out,
              HasSubstr("model.layers.0-31.block_sparse_moe.experts.*.w1.weight"));
}

TEST(Jobs, KeysOfPlanningDoNotDisturb) {
  const std::string job = file_with("c.yaml", "model: {preset: llama-1m}\ncluster: 8xH100-SXM\n");
  EXPECT_EQ(json_of({"inspect", "model", job, "--json"})["parameter_count"], 988544);
}

TEST(Jobs, AllProblemsComeAtOnce) {
  const std::string job =
      file_with("d.yaml", "model: {preset: llama-1m}\nmesh: {tp_sise: 2}\nbatch: {global: 0}\n");
  expect_refused({"inspect", "model", job, "run.device=cuda"},
                 {"did you mean mesh.tp_size?", "batch.global is \"0\"", "run.device cuda is not built yet"});
}

TEST(Jobs, HostileFilesAreRefused) {
  const std::vector<std::string> hostile = {std::string(200000, '['),
                                            std::string(200000, '{'),
                                            "a: &a [1]\nb: [*a, *a]",
                                            "model: !!binary x",
                                            std::string("\0\1\2\3", 4),
                                            "\xff\xfe\xff",
                                            std::string(3 << 20, 'x'),
                                            "model: {preset: llama-1m, preset: llama-28m}",
                                            "model: [",
                                            "- - - - - - - - - - - -",
                                            "model: {preset: \"\x01\"}",
                                            "mesh: {dp_shard_size: 1e99}"};
  for (const std::string& content : hostile) {
    expect_refused({"inspect", "model", file_with("hostile.yaml", content)}, {"error"});
  }
}

TEST(Configs, HostileFilesAreRefused) {
  const std::vector<std::string> hostile = {
      "",
      std::string(200000, '['),
      R"({"model_type": "llama", "hidden_size": 1e30})",
      R"({"model_type": "llama", "num_hidden_layers": 9223372036854775807})",
      R"({"model_type": "llama", "num_attention_heads": 0})",
      R"({"model_type": "llama", "num_key_value_heads": -1})",
      R"({"model_type": null})",
      R"({"model_type": "llama", "model_type": "qwen2"})",
      "\xff\xfe{}",
      std::string(8 << 20, ' ')};
  for (const std::string& content : hostile) {
    expect_refused({"inspect", "model", file_with("hostile.json", content)}, {"error"});
  }
}

}  // namespace
}  // namespace ndmesh::testing_cli
