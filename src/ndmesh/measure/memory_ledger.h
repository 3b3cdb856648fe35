#pragma once

#include <memory>
#include <string>

#include "ndmesh/base/memory_category.h"

namespace ndmesh::measure {

/// Counts the tensor memory of one rank, by category: live bytes and peaks; host memory (HostMemoryScope) apart. Every
/// allocation of a thread that has the ledger installed is booked to it under the thread's MemoryScope; a free goes to the
/// ledger that paid, from any thread. Counts what tensors ask for (rounded up to 64 bytes), not what the C library or
/// kernels such as MKL keep for themselves.
class MemoryLedger {
 public:
  MemoryLedger();
  ~MemoryLedger();

  MemoryBytes live() const;
  /// Each category's own peak since the last reset_peaks.
  MemoryBytes peaks() const;
  /// Peak of the sum of all categories.
  std::int64_t peak_total() const;
  /// Live bytes by category at the moment of peak_total.
  MemoryBytes at_peak() const;

  /// The same of host memory, which is in none of the figures above.
  MemoryBytes host_live() const;
  MemoryBytes host_peaks() const;
  std::int64_t host_peak_total() const;

  void reset_peaks();

  struct Account;

 private:
  friend class LedgerScope;
  std::shared_ptr<Account> account_;
};

/// Books this thread's allocations to `ledger` while it lives.
class LedgerScope {
 public:
  explicit LedgerScope(MemoryLedger& ledger);
  ~LedgerScope();
  LedgerScope(const LedgerScope&) = delete;

 private:
  std::shared_ptr<MemoryLedger::Account> before_;
};

/// Makes libtorch's CPU allocator the counting one. Process-wide, so only the program does it, once, before
/// the first tensor; without it ledgers stay empty. Costs a 64-byte header an allocation.
void install_counting_allocator();

/// The process's largest resident set so far, in bytes.
std::int64_t peak_rss_bytes();

}  // namespace ndmesh::measure
