#include "ndmesh/measure/memory_ledger.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <mutex>
#include <new>

namespace ndmesh::measure {

/// Counters shared by a ledger and the blocks that it paid for, which may outlive it.
struct MemoryLedger::Account {
  using Counters = std::array<std::atomic<std::int64_t>, memory_category_count>;

  /// One kind of memory.
  struct Side {
    Counters live{};
    Counters peak{};
    std::atomic<std::int64_t> total{0};
    std::atomic<std::int64_t> peak_total{0};
    MemoryBytes at_peak;  ///< written by the owner's thread only

    void add(std::size_t category, std::int64_t bytes) {
      raise(peak[category], live[category].fetch_add(bytes, std::memory_order_relaxed) + bytes);
      if (raise(peak_total, total.fetch_add(bytes, std::memory_order_relaxed) + bytes)) {
        at_peak = snapshot(live);
      }
    }

    void subtract(std::size_t category, std::int64_t bytes) {
      live[category].fetch_sub(bytes, std::memory_order_relaxed);
      total.fetch_sub(bytes, std::memory_order_relaxed);
    }

    void reset_peaks() {
      for (std::size_t i = 0; i < memory_category_count; ++i) {
        peak[i].store(live[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
      }
      peak_total.store(total.load(std::memory_order_relaxed), std::memory_order_relaxed);
      at_peak = snapshot(live);
    }
  };

  Side device, host;

  Side& side(bool on_host) { return on_host ? host : device; }

  /// Allocations come from the owner's thread alone, so a plain compare is enough.
  static bool raise(std::atomic<std::int64_t>& peak, std::int64_t value) {
    if (value <= peak.load(std::memory_order_relaxed)) {
      return false;
    }
    peak.store(value, std::memory_order_relaxed);
    return true;
  }

  static MemoryBytes snapshot(const Counters& counters) {
    MemoryBytes bytes;
    for (std::size_t i = 0; i < counters.size(); ++i) {
      bytes.by_category[i] = counters[i].load(std::memory_order_relaxed);
    }
    return bytes;
  }
};

namespace {

using Account = MemoryLedger::Account;

thread_local std::shared_ptr<Account> payer;

constexpr std::size_t header_bytes = 64;  // keeps the data aligned as libtorch's own allocator aligns it

/// Lies before each block: who paid, how much, what for.
struct Header {
  std::shared_ptr<Account> account;
  void* block = nullptr;
  std::int64_t bytes = 0;
  std::size_t category = 0;
  bool on_host = false;
};
static_assert(sizeof(Header) <= header_bytes);

Header* header_of(void* data) {
  return reinterpret_cast<Header*>(static_cast<char*>(data) - header_bytes);
}

void free_block(void* data) {
  if (data == nullptr) {
    return;
  }
  Header* header = header_of(data);
  if (header->account != nullptr) {
    header->account->side(header->on_host).subtract(header->category, header->bytes);
  }
  void* block = header->block;
  header->~Header();
  c10::free_cpu(block);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) {
      return {nullptr, nullptr, &free_block, c10::Device(c10::DeviceType::CPU)};
    }
    const std::size_t rounded = (bytes + header_bytes - 1) / header_bytes * header_bytes;
    void* block = c10::alloc_cpu(rounded + header_bytes);
    void* data = static_cast<char*>(block) + header_bytes;
    const auto category = static_cast<std::size_t>(current_memory_category());
    auto* header = new (header_of(data))
        Header{payer, block, static_cast<std::int64_t>(rounded), category, allocates_on_host()};
    if (header->account != nullptr) {
      header->account->side(header->on_host).add(category, header->bytes);
    }
    // oneDNN asks for raw blocks, which must carry no context but the data itself.
    return {data, data, &free_block, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

}  // namespace

MemoryLedger::MemoryLedger() : account_(std::make_shared<Account>()) {}
MemoryLedger::~MemoryLedger() = default;

MemoryBytes MemoryLedger::live() const {
  return Account::snapshot(account_->device.live);
}
MemoryBytes MemoryLedger::peaks() const {
  return Account::snapshot(account_->device.peak);
}
std::int64_t MemoryLedger::peak_total() const {
  return account_->device.peak_total.load(std::memory_order_relaxed);
}
MemoryBytes MemoryLedger::at_peak() const {
  return account_->device.at_peak;
}
MemoryBytes MemoryLedger::host_live() const {
  return Account::snapshot(account_->host.live);
}
MemoryBytes MemoryLedger::host_peaks() const {
  return Account::snapshot(account_->host.peak);
}
std::int64_t MemoryLedger::host_peak_total() const {
  return account_->host.peak_total.load(std::memory_order_relaxed);
}

void MemoryLedger::reset_peaks() {
  account_->device.reset_peaks();
  account_->host.reset_peaks();
}

LedgerScope::LedgerScope(MemoryLedger& ledger) : before_(std::exchange(payer, ledger.account_)) {}
LedgerScope::~LedgerScope() {
  payer = std::move(before_);
}

void install_counting_allocator() {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
}

std::int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace ndmesh::measure
