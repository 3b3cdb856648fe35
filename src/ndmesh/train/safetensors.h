#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ndmesh/layout/layout.h"
#include "ndmesh/model/model_spec.h"
#include "ndmesh/train/safetensors_header.h"

namespace ndmesh::train {

/// One *.safetensors file, memory-mapped. Any byte of it may be hostile: everything is checked when it is
/// opened (sizes before any allocation, overlaps, holes, duplicate names, header depth and length), with a
/// RequestError that names file, tensor and reason. Safe to read from several threads.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& file);
  ~SafetensorsFile();
  const std::map<std::string, StoredTensor>& tensors() const;
  const std::map<std::string, std::string>& metadata() const;
  /// RequestError when there is none of that name.
  const StoredTensor& tensor(const std::string& name) const;
  /// Its bytes as they lie in the file, valid as long as this object.
  std::span<const std::byte> bytes(const std::string& name) const;

  /// Copies `box` of a tensor into `out` (dense, of the box's element count), converted to out's floating
  /// dtype.
  void read(const std::string& name, const layout::Box& box, const at::Tensor& out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The weights of a Hugging Face folder: model.safetensors, or the shards that model.safetensors.index.json
/// lists (the index decides), or, without an index, every model-*.safetensors if no name occurs twice. Opened
/// and checked against `model` whole: missing files, missing or surplus tensors, wrong shapes, non-floating
/// dtypes, all in one RequestError. Names may lack the first part of the trunk's ("transformer." or "model.", as
/// in the published gpt2); buffers of causal masks and rotary frequencies are no weights. A tied model may store
/// the head too if it equals the embedding bitwise; an untied model without a head is refused.
class ModelWeights {
 public:
  ModelWeights(const std::filesystem::path& folder, const model::ModelSpec& model);
  ~ModelWeights();
  void read(const std::string& parameter, const layout::Box& box, const at::Tensor& out) const;
  /// Things a user should know: ignored files, a head equal to the embedding.
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// How the parameters are stored (the widest dtype when mixed), whatever config.json says.
  DType stored_dtype() const { return stored_dtype_; }

 private:
  class Opening;

  /// The name of a parameter in the files.
  std::string stored_name(const std::string& parameter) const;

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*> where_;  ///< by stored name
  std::string left_out_;                                 ///< what stored names lack in front
  std::vector<std::string> warnings_;
  DType stored_dtype_ = DType::float32;
};

/// What is written, in order; `fill` is called once for each tensor with its turn and returns it whole
/// (dense, on the CPU; only one is in memory at a time).
struct TensorToWrite {
  std::string name;
  std::vector<std::int64_t> shape;
};
using FillTensor = std::function<at::Tensor(const std::string& name)>;

/// Writes one safetensors file, whole or not at all: into FILE.partial, synced, renamed. RunError with path
/// and bytes when the disk is full; the partial file is removed then.
void write_safetensors(const std::filesystem::path& file, const std::vector<TensorToWrite>& tensors,
                       DType dtype, const std::map<std::string, std::string>& metadata,
                       const FillTensor& fill);

/// Writes a Hugging Face folder that Transformers loads: config.json and model.safetensors, or shards of at
/// most `shard_bytes` with an index. Whole or not at all: into FOLDER.partial, synced, swapped in
/// (train/partial_folder.h); an older model stays until then, and what lies beside it in the folder (a
/// tokenizer, notes) stays for good. `fill` is called for every parameter of `model` in order. RequestError
/// when `folder` is a file; RunError, with path, for what fails.
void write_model_folder(const std::filesystem::path& folder, const model::ModelSpec& model, DType dtype,
                        const FillTensor& fill, std::int64_t shard_bytes = 5'000'000'000);

}  // namespace ndmesh::train
