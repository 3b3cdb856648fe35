#include "ndmesh/serve/generate.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"
#include "ndmesh/base/log.h"

namespace ndmesh::serve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Tokens = std::vector<std::int64_t>;

const std::string data = NDMESH_TEST_DATA;

/// The reference results beside each model are ignored with a warning.
const bool quiet = [] {
  set_log_level(LogLevel::error);
  return true;
}();

std::shared_ptr<nn::Decoder> tiny(DType dtype = DType::float32) {
  return load_decoder(data + "/oracle/tiny-a", dtype);
}

constexpr Sampling endless{.ignore_eos = true};

/// Greedy continuation by whole forward passes, without a cache.
Tokens without_cache(nn::Decoder& model, Tokens tokens, std::int64_t count) {
  const at::NoGradGuard no_grad;
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor logits_1SV = model.logits(at::tensor(tokens, at::kLong).unsqueeze(0));
    tokens.push_back(logits_1SV[0][-1].argmax().item<std::int64_t>());
  }
  return {tokens.end() - count, tokens.end()};
}

double checksum(const nn::Decoder& model) {
  double sum = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    sum += parameter.detach().to(at::kDouble).square().sum().item<double>();
  }
  return sum;
}

std::string refusal(nn::Decoder& model, const Tokens& prompt, std::int64_t count,
                    const Sampling& sampling = {}) {
  try {
    generate(model, prompt, count, sampling);
  } catch (const RequestError& error) {
    return error.what();
  }
  return "accepted";
}

// Every family, float64, token by token what Transformers gives.
TEST(Generate, EqualsTransformers) {
  std::ifstream stream(data + "/generate/greedy.json");
  const nlohmann::json models = nlohmann::json::parse(stream);
  for (const auto& [name, golden] : models.items()) {
    const auto model = load_decoder(data + "/oracle/" + name, DType::float64);
    const auto tokens = golden["tokens"].get<Tokens>();
    ASSERT_GT(golden["margin"].get<double>(),
              1e-5);  // Transformers' norms are float32: its logits are exact to 1e-6
    EXPECT_EQ(generate(*model, golden["prompt"].get<Tokens>(), std::ssize(tokens), endless), tokens) << name;
  }
}

// head_dim 16 is not hidden / heads: a cache of the wrong size would be overrun and spoil weights.
TEST(Generate, EqualsTheForwardPassWithoutCacheAndLeavesTheWeights) {
  const auto model = tiny();
  const double before = checksum(*model);
  const Tokens prompt = {5, 200, 17};
  EXPECT_EQ(generate(*model, prompt, 200, endless), without_cache(*model, prompt, 200));
  EXPECT_EQ(checksum(*model), before);
}

// Longer than one piece of the prompt (256 tokens).
TEST(Generate, ReadsLongPromptsInPieces) {
  const auto model = tiny(DType::float64);
  Tokens prompt;
  for (std::int64_t i = 0; i < 300; ++i) {
    prompt.push_back(i * i % 257);
  }
  EXPECT_EQ(generate(*model, prompt, 5, endless), without_cache(*model, prompt, 5));
}

TEST(Generate, ShowsEachTokenAndStopsWhenTold) {
  const auto model = tiny();
  const Tokens all = generate(*model, {1, 2}, 10, endless);
  Tokens seen;
  const Tokens some = generate(*model, {1, 2}, 10, endless, [&](std::int64_t token) {
    seen.push_back(token);
    return seen.size() < 4;
  });
  EXPECT_EQ(seen, some);
  EXPECT_EQ(some, Tokens(all.begin(), all.begin() + 4));
  EXPECT_TRUE(generate(*model, {1, 2}, 0, endless).empty());
}

// llama's eos_token_id is 2.
TEST(Generate, EndsBehindATokenThatEndsAText) {
  const auto model = tiny();
  const std::vector<std::int64_t> eos = model->spec().eos_tokens;
  ASSERT_THAT(eos, ElementsAre(2));
  Sampling hot{.temperature = 100.0, .seed = 1};  // almost uniform: 2 comes soon
  const Tokens tokens = generate(*model, {5}, 500, hot);
  ASSERT_LT(std::ssize(tokens), 500);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 2), 1);
  EXPECT_EQ(tokens.back(), 2);
  hot.ignore_eos = true;
  const Tokens longer = generate(*model, {5}, std::ssize(tokens) + 3, hot);
  EXPECT_EQ(std::ssize(longer), std::ssize(tokens) + 3);
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), longer.begin()));
}

TEST(Generate, RepeatsForTheSameSeed) {
  const auto model = tiny();
  const auto drawn = [&](std::uint64_t seed) {
    return generate(*model, {1}, 30, {.temperature = 1.0, .top_p = 0.9, .seed = seed, .ignore_eos = true});
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

TEST(Generate, ComputesInBfloat16) {
  const auto model = tiny(DType::bfloat16);
  EXPECT_EQ(model->head_weight().scalar_type(), at::kBFloat16);
  EXPECT_EQ(generate(*model, {1, 2, 3}, 20, endless).size(), 20u);
}

TEST(Generate, RefusesImpossibleRequests) {
  const auto model = tiny();
  EXPECT_THAT(refusal(*model, {}, 5), HasSubstr("the prompt is empty"));
  EXPECT_THAT(refusal(*model, {0, 257}, 5),
              HasSubstr("token 1 of the prompt is 257; the model's vocabulary is 0 to 256"));
  EXPECT_THAT(refusal(*model, {-1}, 5), HasSubstr("is -1"));
  EXPECT_THAT(refusal(*model, {1}, -5), HasSubstr("count is -5"));
  EXPECT_THAT(refusal(*model, {1, 2}, 511),
              HasSubstr("512 positions (max_position_embeddings); set count to at most 510"));
  EXPECT_THAT(refusal(*model, {1, 2}, INT64_MAX), HasSubstr("set count to at most 510"));
  EXPECT_THAT(refusal(*model, {1}, 1, {.temperature = -1}), HasSubstr("temperature"));
  const std::string both = refusal(*model, {300}, 512);
  EXPECT_THAT(both, HasSubstr("vocabulary"));
  EXPECT_THAT(both, HasSubstr("512 positions"));
  EXPECT_EQ(generate(*model, {1, 2}, 510, endless).size(), 510u);
}

TEST(LoadDecoder, RefusesWhatCannotBeComputed) {
  EXPECT_THROW(load_decoder(data + "/oracle/tiny-a", DType::float16), RequestError);
  EXPECT_THROW(load_decoder(data + "/oracle/none", DType::float32), RequestError);
}

TEST(LoadDecoder, PutsAllParametersIntoOneStorage) {
  const auto model = tiny();
  for (const at::Tensor& parameter : model->parameters()) {
    EXPECT_TRUE(parameter.is_alias_of(model->parameters().front()));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(parameter.data_ptr()) % 64, 0u);
  }
}

}  // namespace
}  // namespace ndmesh::serve
