#include "ndmesh/comm/transfer.h"

#include <algorithm>
#include <numeric>

#include "ndmesh/comm/kernels.h"
#include "ndmesh/layout/layout.h"

namespace ndmesh::comm {
namespace {

/// Elements of a chunk: small enough to share the work evenly, large enough to hide the cost of taking one.
constexpr std::int64_t chunk = 16384;

std::int64_t elements_of(const CallNote::Entry& entry) {
  return std::accumulate(entry.sizes.begin(), entry.sizes.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t chunks_of(const CallNote::Entry& entry) {
  return (elements_of(entry) + chunk - 1) / chunk;
}

char* offset(void* memory, std::int64_t elements, at::ScalarType dtype) {
  return static_cast<char*>(memory) + elements * static_cast<std::int64_t>(c10::elementSize(dtype));
}

const char* offset(const void* memory, std::int64_t elements, at::ScalarType dtype) {
  return static_cast<const char*>(memory) + elements * static_cast<std::int64_t>(c10::elementSize(dtype));
}

/// Elements in the rows of member `index`, as a range of the whole tensor's elements.
layout::Range elements_of_rows(const CallNote::Entry& whole, int size, int index) {
  const std::int64_t rows = whole.sizes[0];
  const std::int64_t row = rows == 0 ? 0 : elements_of(whole) / rows;
  const layout::Range range = layout::split(rows, size, index);
  return {range.start * row, range.size * row};
}

void all_gather(SharedCall& call, int slot) {
  const Slot& mine = call.slot(slot);
  for (std::size_t i = 0; i < mine.outputs.size(); ++i) {
    const CallNote::Entry& whole = mine.note->outputs[i];
    for (int step = 0; step < call.size(); ++step) {
      const int from = (slot + step) % call.size();  // members read different peers at a time
      const layout::Range range = elements_of_rows(whole, call.size(), from);
      copy_elements(offset(mine.outputs[i], range.start, whole.dtype), whole.dtype, call.slot(from).inputs[i],
                    mine.note->inputs[i].dtype, range.size);
    }
  }
}

void reduce_scatter(SharedCall& call, int slot) {
  const Slot& mine = call.slot(slot);
  std::vector<const void*> sources(call.slots.size());
  for (std::size_t i = 0; i < mine.outputs.size(); ++i) {
    const CallNote::Entry& whole = mine.note->inputs[i];
    const layout::Range range = elements_of_rows(whole, call.size(), slot);
    for (std::size_t from = 0; from < sources.size(); ++from) {
      sources[from] = offset(call.slots[from].inputs[i], range.start, whole.dtype);
    }
    sum_elements(mine.outputs[i], mine.note->outputs[i].dtype, sources, whole.dtype, mine.call.accumulate,
                 range.size);
  }
}

void all_to_all(SharedCall& call, int slot) {
  const Slot& mine = call.slot(slot);
  for (int step = 0; step < call.size(); ++step) {
    const int from = (slot + step) % call.size();
    const std::size_t f = static_cast<std::size_t>(from);
    const CallNote::Entry& entry = mine.note->outputs[f];
    copy_elements(mine.outputs[f], entry.dtype, call.slot(from).inputs[static_cast<std::size_t>(slot)],
                  entry.dtype, elements_of(entry));
  }
}

void broadcast(SharedCall& call, int slot) {
  const Slot& mine = call.slot(slot);
  const Slot& root = call.slot(mine.note->root);
  for (std::size_t i = 0; i < mine.outputs.size(); ++i) {
    const CallNote::Entry& entry = mine.note->outputs[i];
    copy_elements(mine.outputs[i], entry.dtype, root.outputs[i], entry.dtype, elements_of(entry));
  }
}

void receive(SharedCall& call, int slot) {
  const CallNote::Entry& entry = call.slot(slot).note->outputs[0];
  copy_elements(call.slot(slot).outputs[0], entry.dtype, call.slot(0).inputs[0], entry.dtype,
                elements_of(entry));
}

/// Walks the chunks of a call's tensors in order.
class ChunkCursor {
 public:
  explicit ChunkCursor(const CallNote& note) : note_(note) {}

  /// Goes on to chunk `index`, which is after the last one that was asked for and exists.
  void seek(std::int64_t index) {
    while (index >= before_ + chunks_of(note_.outputs[tensor_])) {
      before_ += chunks_of(note_.outputs[tensor_++]);
    }
    begin_ = (index - before_) * chunk;
  }

  std::size_t tensor() const { return tensor_; }
  at::ScalarType dtype() const { return note_.outputs[tensor_].dtype; }
  std::int64_t begin() const { return begin_; }
  std::int64_t count() const { return std::min(chunk, elements_of(note_.outputs[tensor_]) - begin_); }

 private:
  const CallNote& note_;
  std::size_t tensor_ = 0;
  std::int64_t before_ = 0;  // chunks of the tensors before
  std::int64_t begin_ = 0;
};

}  // namespace

void move_to(SharedCall& call, int slot) {
  switch (call.slot(slot).note->op) {
    case Op::all_gather:
      return all_gather(call, slot);
    case Op::reduce_scatter:
      return reduce_scatter(call, slot);
    case Op::all_to_all:
      return all_to_all(call, slot);
    case Op::broadcast:
      return broadcast(call, slot);
    case Op::recv:
      return receive(call, slot);
    case Op::all_reduce:
    case Op::send:
    case Op::barrier:
      return;
  }
}

std::int64_t chunk_count(const CallNote& note) {
  std::int64_t count = 0;
  for (const CallNote::Entry& entry : note.outputs) {
    count += chunks_of(entry);
  }
  return count;
}

bool reduce_chunks(SharedCall& call, int slot) {
  const CallNote& note = *call.slot(slot).note;
  const std::int64_t total = chunk_count(note);
  ChunkCursor cursor(note);
  std::vector<void*> tensors(call.slots.size());
  bool finished_last = false;
  for (std::int64_t index = call.next_chunk++; index < total; index = call.next_chunk++) {
    cursor.seek(index);
    for (std::size_t rank = 0; rank < tensors.size(); ++rank) {
      tensors[rank] = call.slots[rank].outputs[cursor.tensor()];
    }
    reduce_in_place(tensors, cursor.dtype(), note.reduction, cursor.begin(), cursor.count());
    finished_last = ++call.done_chunks == total;
  }
  return finished_last;
}

}  // namespace ndmesh::comm
