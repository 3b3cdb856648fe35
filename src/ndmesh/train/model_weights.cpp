#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "ndmesh/base/error.h"
#include "ndmesh/base/file.h"
#include "ndmesh/base/text.h"
#include "ndmesh/train/model_files.h"
#include "ndmesh/train/safetensors.h"
#include "ndmesh/train/scalar_type.h"
#include "ndmesh/train/weights_index.h"

namespace ndmesh::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_index_bytes = std::int64_t{64} << 20;
constexpr std::string_view head_name = "lm_head.weight";

std::vector<std::string> safetensors_in(const fs::path& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") {
      names.push_back(entry.path().filename().string());
    }
  }
  if (error) {
    throw RequestError(
        fmt::format("{}: cannot be read as a model folder: {}", folder.string(), error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Why a folder without safetensors is refused: it may hold another format.
std::string no_weights(const fs::path& folder) {
  for (const char* other : {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth"}) {
    if (fs::exists(folder / other)) {
      return fmt::format(
          "{}: holds {}, which is not read; save the model as safetensors (Transformers: save_pretrained)",
          folder.string(), other);
    }
  }
  return fmt::format("{}: holds no weights: neither {}, nor {}, nor model-*.safetensors", folder.string(),
                     single_weights_file, weights_index_file);
}

}  // namespace

/// Opens the files of a folder and finds out which holds what, gathering everything that is wrong.
class ModelWeights::Opening {
 public:
  Opening(ModelWeights& weights, const fs::path& folder) : weights_(weights), folder_(folder) {}

  void run(const model::ModelSpec& model) {
    const std::vector<std::string> present = safetensors_in(folder_);
    if (fs::exists(folder_ / weights_index_file)) {
      const fs::path index = folder_ / weights_index_file;
      open_indexed(parse_weights_index(read_file(index, most_index_bytes), index.string()));
    } else {
      open_unindexed(present);
    }
    warn_of_ignored(present);
    note_names(model);
    check_parameters(model);
    check_surplus(model);
    problems_.raise();
    note_dtype(model);
  }

 private:
  /// Null when it cannot be used, which is noted.
  const SafetensorsFile* open(const std::string& name) {
    used_.insert(name);
    try {
      weights_.files_.push_back(std::make_unique<SafetensorsFile>(folder_ / name));
      return weights_.files_.back().get();
    } catch (const RequestError& error) {
      problems_.add_all(error.problems());
      return nullptr;
    }
  }

  void open_indexed(const WeightMap& map) {
    std::map<std::string, const SafetensorsFile*> files;
    std::vector<std::string> missing;
    for (const auto& [tensor, name] : map) {
      if (files.contains(name)) {
        continue;
      }
      const bool exists = fs::exists(folder_ / name);
      files[name] = exists ? open(name) : nullptr;
      if (!exists) {
        missing.push_back(shown(name));
      }
    }
    if (!missing.empty()) {
      problems_.add(
          fmt::format("{}: {} of the {} files that {} lists are missing: {}; the folder was not copied "
                      "whole, or the index "
                      "is another version's: fetch it again",
                      folder_.string(), missing.size(), files.size(), weights_index_file, join(missing)));
    }
    for (const auto& [tensor, name] : map) {
      const SafetensorsFile* file = files[name];
      if (file != nullptr && !file->tensors().contains(tensor)) {
        problems_.add(fmt::format("{}: the index says that {} holds tensor {}, but it does not",
                                  folder_.string(), shown(name), shown(tensor)));
        file = nullptr;
      }
      weights_.where_[tensor] = file;
    }
  }

  void open_unindexed(const std::vector<std::string>& present) {
    std::vector<std::string> names;
    if (std::find(present.begin(), present.end(), single_weights_file) != present.end()) {
      names.emplace_back(single_weights_file);
    } else {
      std::copy_if(present.begin(), present.end(), std::back_inserter(names), is_shard_file);
    }
    if (names.empty()) {
      throw RequestError(no_weights(folder_));
    }
    for (const std::string& name : names) {
      const SafetensorsFile* file = open(name);
      if (file == nullptr) {
        unreadable_ = true;
        continue;
      }
      for (const auto& [tensor, stored] : file->tensors()) {
        if (!weights_.where_.emplace(tensor, file).second) {
          problems_.add(fmt::format("{}: tensor {} is in {} and in another file, and no {} says which counts",
                                    folder_.string(), shown(tensor), name, weights_index_file));
        }
      }
    }
  }

  void warn_of_ignored(const std::vector<std::string>& present) {
    for (const std::string& name : present) {
      if (!used_.contains(name)) {
        weights_.warnings_.push_back(fmt::format("{}: {} is ignored: {}", folder_.string(), shown(name),
                                                 fs::exists(folder_ / weights_index_file)
                                                     ? "the index does not list it"
                                                     : "only model.safetensors is read"));
      }
    }
  }

  /// A checkpoint of the trunk alone has its names without the trunk's.
  void note_names(const model::ModelSpec& model) {
    const std::string table = model.parameters().front().name;
    const std::size_t trunk = table.find('.') + 1;
    if (!weights_.where_.contains(table) && weights_.where_.contains(table.substr(trunk))) {
      weights_.left_out_ = table.substr(0, trunk);
    }
  }

  void check_parameters(const model::ModelSpec& model) {
    for (const model::ParameterSpec& parameter : model.parameters()) {
      const auto found = weights_.where_.find(weights_.stored_name(parameter.name));
      if (found != weights_.where_.end()) {
        check_stored(parameter, found->second);
      } else if (!unreadable_) {
        problems_.add(
            fmt::format("{}: tensor {} of shape [{}] is missing{}", folder_.string(), parameter.name,
                        fmt::join(parameter.shape, ", "),
                        parameter.role == model::Role::head
                            ? "; if the head is the embedding, set tie_word_embeddings: true in config.json"
                            : ""));
      }
    }
  }

  void check_stored(const model::ParameterSpec& parameter, const SafetensorsFile* file) {
    if (file == nullptr) {
      return;  // already said of its file
    }
    const StoredTensor& stored = file->tensor(weights_.stored_name(parameter.name));
    if (stored.shape != parameter.shape) {
      problems_.add(fmt::format("{}: tensor {} has shape [{}], but config.json makes it [{}]",
                                folder_.string(), parameter.name, fmt::join(stored.shape, ", "),
                                fmt::join(parameter.shape, ", ")));
    }
    if (!is_floating(stored.dtype)) {
      problems_.add(fmt::format(
          "{}: tensor {} has dtype {}; weights are F64, F32, BF16 or F16 (quantised models are not built)",
          folder_.string(), parameter.name, safetensors_name(stored.dtype)));
    }
  }

  void check_surplus(const model::ModelSpec& model) {
    std::set<std::string> expected;
    for (const model::ParameterSpec& parameter : model.parameters()) {
      expected.insert(weights_.stored_name(parameter.name));
    }
    for (const auto& [name, file] : weights_.where_) {
      const bool mask =
          model.learned_positions && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
      if (expected.contains(name) || file == nullptr || mask) {
        continue;
      }
      if (model.tied && name == head_name) {
        check_tied_head(model, *file);
      } else if (name.ends_with(".rotary_emb.inv_freq")) {
        weights_.warnings_.push_back(fmt::format(
            "{}: {} is ignored: config.json gives the rotary frequencies", folder_.string(), shown(name)));
      } else {
        problems_.add(fmt::format("{}: tensor {} has no place in the model that config.json describes",
                                  folder_.string(), shown(name)));
      }
    }
  }

  void check_tied_head(const model::ModelSpec& model, const SafetensorsFile& file) {
    const std::string head(head_name);
    const std::string table = weights_.stored_name(model.parameters().front().name);
    const auto found = weights_.where_.find(table);
    if (found == weights_.where_.end() || found->second == nullptr) {
      return;  // already said
    }
    const StoredTensor& stored = found->second->tensor(table);
    const std::span<const std::byte> table_bytes = found->second->bytes(table);
    const std::span<const std::byte> head_bytes = file.bytes(head);
    const bool equal =
        stored.dtype == file.tensor(head).dtype && stored.shape == file.tensor(head).shape &&
        std::equal(table_bytes.begin(), table_bytes.end(), head_bytes.begin(), head_bytes.end());
    if (equal) {
      weights_.warnings_.push_back(fmt::format("{}: {} is stored too; it equals {} and is one with it",
                                               folder_.string(), head, table));
    } else {
      problems_.add(
          fmt::format("{}: {} differs from {}, but config.json makes them one (tie_word_embeddings: true); "
                      "set it to false",
                      folder_.string(), head, table));
    }
  }

  /// The files decide; the widest counts when they are mixed.
  void note_dtype(const model::ModelSpec& model) {
    std::int64_t widest = 0;
    for (const model::ParameterSpec& parameter : model.parameters()) {
      const std::string name = weights_.stored_name(parameter.name);
      const DType dtype = weights_.where_.at(name)->tensor(name).dtype;
      if (bytes_of(dtype) > widest) {
        widest = bytes_of(dtype);
        weights_.stored_dtype_ = dtype;
      }
    }
    if (model.stored_dtype && *model.stored_dtype != weights_.stored_dtype_) {
      weights_.warnings_.push_back(
          fmt::format("{}: config.json says dtype {}, the weights are stored as {}; the files count",
                      folder_.string(), name_of(*model.stored_dtype), name_of(weights_.stored_dtype_)));
    }
  }

  ModelWeights& weights_;
  const fs::path& folder_;
  std::set<std::string> used_;
  bool unreadable_ = false;  ///< a file without index is broken: what it holds is unknown
  Problems problems_;
};

ModelWeights::ModelWeights(const fs::path& folder, const model::ModelSpec& model) {
  Opening(*this, folder).run(model);
}

ModelWeights::~ModelWeights() = default;

std::string ModelWeights::stored_name(const std::string& parameter) const {
  return parameter.starts_with(left_out_) ? parameter.substr(left_out_.size()) : parameter;
}

void ModelWeights::read(const std::string& parameter, const layout::Box& box, const at::Tensor& out) const {
  const std::string name = stored_name(parameter);
  where_.at(name)->read(name, box, out);
}

}  // namespace ndmesh::train
