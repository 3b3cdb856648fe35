#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"
#include "ndmesh/train/partial_file.h"
#include "ndmesh/train/safetensors.h"
#include "ndmesh/train/scalar_type.h"

namespace ndmesh::train {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t alignment = 8;  // of the data part, as the reference writer has it

std::uint64_t dense_bytes(const std::vector<std::int64_t>& shape, DType dtype) {
  std::int64_t bytes = bytes_of(dtype);
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) {
      throw std::invalid_argument(fmt::format("shape [{}] cannot be written", fmt::join(shape, ", ")));
    }
  }
  return static_cast<std::uint64_t>(bytes);
}

struct Header {
  std::string text;  ///< length and JSON, padded
  std::uint64_t data_bytes = 0;
};

Header header_of(const std::vector<TensorToWrite>& tensors, DType dtype,
                 const std::map<std::string, std::string>& metadata) {
  Header header;
  ordered_json root = ordered_json::object();
  if (!metadata.empty()) {
    root[safetensors_metadata_key] = metadata;
  }
  std::set<std::string_view> names{safetensors_metadata_key};
  for (const TensorToWrite& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      throw std::invalid_argument(fmt::format("two tensors named {} cannot be written", shown(tensor.name)));
    }
    const std::uint64_t end = header.data_bytes + dense_bytes(tensor.shape, dtype);
    root[tensor.name] = {{"dtype", safetensors_name(dtype)},
                         {"shape", tensor.shape},
                         {"data_offsets", {header.data_bytes, end}}};
    header.data_bytes = end;
  }
  std::string json = root.dump();
  json.resize((json.size() + alignment - 1) / alignment * alignment, ' ');
  for (std::size_t byte = 0; byte < sizeof(std::uint64_t); ++byte) {
    header.text += static_cast<char>(json.size() >> (8 * byte));
  }
  header.text += json;
  return header;
}

/// What `fill` gave, as it goes into the file: exactly its elements, row-major.
at::Tensor stored_form(const at::Tensor& value, const TensorToWrite& tensor, DType dtype) {
  if (!value.defined() || !value.is_cpu() || value.sizes() != tensor.shape) {
    throw std::invalid_argument(fmt::format("tensor {} was not filled with a CPU tensor of shape [{}]",
                                            shown(tensor.name), fmt::join(tensor.shape, ", ")));
  }
  return value.detach().to(scalar_type(dtype)).contiguous();
}

}  // namespace

void write_safetensors(const std::filesystem::path& file, const std::vector<TensorToWrite>& tensors,
                       DType dtype, const std::map<std::string, std::string>& metadata,
                       const FillTensor& fill) {
  const Header header = header_of(tensors, dtype, metadata);
  PartialFile out(file, header.text.size() + header.data_bytes);
  out.write(std::as_bytes(std::span(header.text)));
  for (const TensorToWrite& tensor : tensors) {
    const at::Tensor value = stored_form(fill(tensor.name), tensor, dtype);
    out.write({static_cast<const std::byte*>(value.const_data_ptr()), value.nbytes()});
  }
  out.publish();
}

}  // namespace ndmesh::train
