#pragma once

/// Tensors that ranks share, for the thread sanitizer. libtorch is not instrumented: what it writes and reads is unknown to the
/// sanitizer, unless ndmesh says it in its place. In other builds these do nothing. `Tensors`: a list of at::Tensor.

#ifdef __SANITIZE_THREAD__
extern "C" {
void __tsan_write_range(void* memory, unsigned long bytes);
void __tsan_read_range(void* memory, unsigned long bytes);
}
#endif

namespace ndmesh {

/// This thread has written, or may write from now on.
template <typename Tensors>
void note_written([[maybe_unused]] const Tensors& tensors) {
#ifdef __SANITIZE_THREAD__
  for (const auto& tensor : tensors) {
    __tsan_write_range(const_cast<void*>(tensor.const_data_ptr()), tensor.nbytes());
  }
#endif
}

/// This thread reads from now on.
template <typename Tensors>
void note_read([[maybe_unused]] const Tensors& tensors) {
#ifdef __SANITIZE_THREAD__
  for (const auto& tensor : tensors) {
    __tsan_read_range(const_cast<void*>(tensor.const_data_ptr()), tensor.nbytes());
  }
#endif
}

}  // namespace ndmesh
