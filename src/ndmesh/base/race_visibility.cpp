#include "ndmesh/base/race_visibility.h"

#ifdef __SANITIZE_THREAD__
extern "C" {
void __tsan_write_range(void* memory, unsigned long bytes);
void __tsan_read_range(void* memory, unsigned long bytes);
}
#endif

namespace ndmesh {

void note_written([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef __SANITIZE_THREAD__
  __tsan_write_range(const_cast<void*>(memory), bytes);
#endif
}

void note_read([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef __SANITIZE_THREAD__
  __tsan_read_range(const_cast<void*>(memory), bytes);
#endif
}

}  // namespace ndmesh
