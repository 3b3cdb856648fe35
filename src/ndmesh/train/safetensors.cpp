#include "ndmesh/train/safetensors.h"

#include <fmt/format.h>

#include <stdexcept>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"
#include "ndmesh/train/box_copy.h"
#include "ndmesh/train/mapped_file.h"
#include "ndmesh/train/scalar_type.h"

namespace ndmesh::train {

struct SafetensorsFile::Impl {
  explicit Impl(const std::filesystem::path& path)
      : file(path.string()), mapped(path), header(read_safetensors_header(mapped.bytes(), file)) {}

  std::string file;
  MappedFile mapped;
  SafetensorsHeader header;
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& file) : impl_(std::make_unique<Impl>(file)) {}

SafetensorsFile::~SafetensorsFile() = default;

const std::map<std::string, StoredTensor>& SafetensorsFile::tensors() const {
  return impl_->header.tensors;
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return impl_->header.metadata;
}

const StoredTensor& SafetensorsFile::tensor(const std::string& name) const {
  const auto found = tensors().find(name);
  if (found == tensors().end()) {
    throw RequestError(fmt::format("{}: has no tensor {}", impl_->file, shown(name)));
  }
  return found->second;
}

std::span<const std::byte> SafetensorsFile::bytes(const std::string& name) const {
  const StoredTensor& stored = tensor(name);
  return impl_->mapped.bytes().subspan(impl_->header.data_start + stored.begin, stored.end - stored.begin);
}

void SafetensorsFile::read(const std::string& name, const layout::Box& box, const at::Tensor& out) const {
  const StoredTensor& stored = tensor(name);
  if (!is_floating(stored.dtype)) {
    throw RequestError(fmt::format("{}: tensor {} has dtype {}; weights are F64, F32, BF16 or F16",
                                   impl_->file, shown(name), safetensors_name(stored.dtype)));
  }
  const auto dtype = dtype_of(out.scalar_type());
  if (!dtype || !out.is_cpu() || !out.is_contiguous() || out.numel() != layout::elements(box)) {
    throw std::invalid_argument("a box is read into a dense CPU tensor of its elements");
  }
  copy_box(bytes(name).data(), stored.dtype, stored.shape, box, static_cast<std::byte*>(out.data_ptr()),
           *dtype);
}

}  // namespace ndmesh::train
