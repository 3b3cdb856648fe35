#include "ndmesh/nn/parameter.h"

#include <ATen/Functions.h>
#include <c10/core/CPUAllocator.h>

namespace ndmesh::nn {
namespace {

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

}  // namespace

at::Tensor unmaterialised(at::IntArrayRef shape, at::ScalarType dtype) {
  const std::int64_t bytes =
      c10::multiply_integers(shape) * static_cast<std::int64_t>(c10::elementSize(dtype));
  // An empty tensor is given a storage of the full size that has no memory behind it.
  auto storage = c10::Storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, at::kCPU),
                              c10::GetAllocator(at::kCPU), /*resizable=*/false);
  at::Tensor tensor = at::empty({0}, at::TensorOptions().dtype(dtype));
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  drop_memory(tensor, "this parameter has no memory yet: lay the module out (replicate, fully_shard) first");
  return tensor.set_requires_grad(true);
}

bool has_memory(const at::Tensor& tensor) {
  // The checked accessors throw where the answer is no.
  return tensor.numel() == 0 || storage_of(tensor)->_mutable_data_ptr_no_checks().get() != nullptr;
}

void drop_memory(const at::Tensor& tensor, std::string why) {
  c10::StorageImpl* storage = storage_of(tensor);
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, tensor.device()));  // the size stays: views remain valid
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(
      std::move(why));  // without it a read would crash
}

void take_memory(const at::Tensor& tensor) {
  c10::StorageImpl* storage = storage_of(tensor);
  storage->clear_data_ptr_access_error_msg_();
  storage->set_data_ptr_noswap(c10::GetAllocator(tensor.device().type())->allocate(storage->nbytes()));
}

void place(const at::Tensor& parameter, const at::Tensor& flat, std::int64_t offset) {
  TORCH_CHECK(parameter.scalar_type() == flat.scalar_type(), "a parameter's flat storage has its dtype");
  TORCH_CHECK(offset + parameter.numel() <= flat.numel(), "a parameter lies inside its flat storage");
  c10::TensorImpl* impl = parameter.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(flat.storage());
  impl->set_storage_offset(offset);
  impl->set_sizes_contiguous(parameter.sizes().vec());
}

}  // namespace ndmesh::nn
