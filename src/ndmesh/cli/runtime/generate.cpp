#include "ndmesh/serve/generate.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "ndmesh/base/error.h"
#include "ndmesh/base/log.h"
#include "ndmesh/base/text.h"
#include "ndmesh/cli/runtime/commands.h"
#include "ndmesh/model/config.h"
#include "ndmesh/serve/byte_text.h"

namespace ndmesh::cli {
namespace {

struct Options {
  std::string model;
  std::string prompt;
  bool tokens = false;
  std::int64_t count = 200;
  serve::Sampling sampling;
  bool json = false;
};

std::vector<std::int64_t> read_ids(const std::string& text) {
  std::vector<std::int64_t> ids;
  for (const std::string& word : split(text, ' ')) {
    if (word.empty()) {
      continue;
    }
    std::int64_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size()) {
      throw RequestError("--tokens: " + shown(word) +
                         " is no token id; the prompt is a list of ids, as in \"72 105\"");
    }
    ids.push_back(id);
  }
  return ids;
}

/// How this model's tokens are read and shown. RequestError when text was asked of a model that has no bytes
/// for tokens.
bool speaks_text(const Options& options, const model::ModelSpec& spec) {
  if (!options.tokens && !spec.byte_tokens) {
    throw RequestError(
        fmt::format("{} is no byte model (config.json has no ndmesh_tokens: bytes), and reading its "
                    "tokenizer.json is not built yet: give token ids with --tokens",
                    options.model));
  }
  return !options.tokens;
}

int run(const Options& options) {
  const model::ModelSpec spec = model::spec_from_folder(options.model);
  const bool text = speaks_text(options, spec);
  const auto prompt = text ? serve::tokens_of(options.prompt) : read_ids(options.prompt);
  const auto decoder = serve::load_decoder(options.model, DType::float32);
  const auto stream = [&](std::int64_t token) {
    fmt::print("{}", text ? serve::text_of(token) : fmt::format("{} ", token));
    std::fflush(stdout);
    return true;
  };
  const auto tokens = serve::generate(*decoder, prompt, options.count, options.sampling,
                                      options.json ? std::function<bool(std::int64_t)>() : stream);
  if (options.json) {
    nlohmann::json document = {{"prompt_tokens", prompt}, {"tokens", tokens}};
    if (text) {
      document["text"] = serve::text_of(tokens);
    }
    fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("\n");
  }
  return done;
}

}  // namespace

void register_generate(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt with a model");
  auto options = std::make_shared<Options>();
  command->add_option("MODEL", options->model, "Hugging Face folder")->required();
  command->add_option("PROMPT", options->prompt, "Text, for byte models; token ids with --tokens")
      ->required();
  command->add_flag("--tokens", options->tokens,
                    "The prompt, and what is printed, are token ids: \"72 105\"");
  command->add_option("--count", options->count, "Tokens to make at most")->capture_default_str();
  command->add_option("--temperature", options->sampling.temperature, "0 takes the likeliest token")
      ->capture_default_str();
  command
      ->add_option("--top-p", options->sampling.top_p,
                   "Draw from the likeliest tokens of this total probability")
      ->capture_default_str();
  command->add_option("--seed", options->sampling.seed, "Same seed, same text")->capture_default_str();
  command->add_flag("--ignore-eos", options->sampling.ignore_eos, "Go on behind a token that ends a text");
  command->add_flag("--json", options->json, "Print one JSON document");
  command->callback([options, &chosen] {
    chosen.action = [options] { return with_libtorch([&] { return run(*options); }); };
  });
}

}  // namespace ndmesh::cli
