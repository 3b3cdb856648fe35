#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "ndmesh/base/error.h"
#include "ndmesh/model/config.h"
#include "ndmesh/train/model_files.h"
#include "ndmesh/train/partial_file.h"
#include "ndmesh/train/partial_folder.h"
#include "ndmesh/train/safetensors.h"

namespace ndmesh::train {
namespace {

namespace fs = std::filesystem;

struct Shard {
  std::vector<TensorToWrite> tensors;
  std::int64_t bytes = 0;
};

/// Parameters in order, as many to a shard as fit; one that is larger than a shard has one of its own.
std::vector<Shard> shards_of(const std::vector<model::ParameterSpec>& parameters, DType dtype,
                             std::int64_t shard_bytes) {
  std::vector<Shard> shards(1);
  for (const model::ParameterSpec& parameter : parameters) {
    const std::int64_t bytes = parameter.elements() * bytes_of(dtype);
    if (!shards.back().tensors.empty() && shards.back().bytes > shard_bytes - bytes) {
      shards.emplace_back();
    }
    shards.back().tensors.push_back({parameter.name, parameter.shape});
    shards.back().bytes += bytes;
  }
  return shards;
}

std::string shard_name(std::size_t shard, std::size_t shards) {
  return shards == 1 ? std::string(single_weights_file)
                     : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

std::string index_of(const std::vector<Shard>& shards) {
  nlohmann::ordered_json index;
  std::int64_t total = 0;
  auto map = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    total += shards[i].bytes;
    for (const TensorToWrite& tensor : shards[i].tensors) {
      map[tensor.name] = shard_name(i, shards.size());
    }
  }
  index["metadata"] = {{"total_size", total}};
  index["weight_map"] = std::move(map);
  return index.dump(2) + "\n";
}

void write_text(const fs::path& file, const std::string& text) {
  PartialFile out(file, text.size());
  out.write(std::as_bytes(std::span(text)));
  out.publish();
}

/// What the older folder holds beside a model of ours (a tokenizer, say) belongs to the user and stays.
void keep_other_files(const fs::path& from, const fs::path& to) {
  if (!fs::exists(from)) {
    return;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const fs::path name = entry.path().filename();
    if (!is_model_file(name.string())) {
      fs::copy(entry.path(), to / name,
               fs::copy_options::recursive | fs::copy_options::create_hard_links |
                   fs::copy_options::copy_symlinks);
    }
  }
}

}  // namespace

void write_model_folder(const fs::path& folder, const model::ModelSpec& model, DType dtype,
                        const FillTensor& fill, std::int64_t shard_bytes) {
  const std::vector<Shard> shards = shards_of(model.parameters(), dtype, shard_bytes);
  try {
    if (fs::exists(folder) && !fs::is_directory(folder)) {
      throw RequestError(
          fmt::format("{}: is a file, where a model folder is to be written", folder.string()));
    }
    PartialFolder partial(folder, static_cast<std::uint64_t>(model.parameter_count() * bytes_of(dtype)));
    keep_other_files(partial.target(), partial.path());
    write_text(partial.path() / "config.json", model::config_from_spec(model, dtype));
    if (shards.size() > 1) {
      write_text(partial.path() / weights_index_file, index_of(shards));
    }
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const fs::path file = partial.path() / shard_name(i, shards.size());
      write_safetensors(file, shards[i].tensors, dtype, {{"format", "pt"}}, fill);
    }
    partial.publish();
  } catch (const fs::filesystem_error& error) {
    throw RunError(fmt::format("{}: the model could not be written: {}", folder.string(), error.what()));
  }
}

}  // namespace ndmesh::train
