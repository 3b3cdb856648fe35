#include "ndmesh/comm/call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "ndmesh/layout/layout.h"

namespace ndmesh::comm {
namespace {

constexpr std::array<std::string_view, 8> op_names = {
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send", "recv", "barrier"};

constexpr std::size_t most_entries_shown = 3;

std::vector<CallNote::Entry> entries_of(const Tensors& tensors) {
  std::vector<CallNote::Entry> entries;
  entries.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    entries.push_back({tensor.scalar_type(), c10::DimVector(tensor.sizes())});
  }
  return entries;
}

std::int64_t bytes_of(const Tensors& tensors) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    bytes += static_cast<std::int64_t>(tensor.nbytes());
  }
  return bytes;
}

/// The outputs of an all-gather as their inputs' dtypes would hold them: that is what travels.
std::int64_t bytes_gathered(const Call& call) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    bytes += call.outputs[i].numel() * static_cast<std::int64_t>(call.inputs[i].element_size());
  }
  return bytes;
}

std::string text_of(const std::vector<CallNote::Entry>& entries) {
  if (entries.empty()) {
    return "nothing";
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(entries.size(), most_entries_shown); ++i) {
    text += fmt::format("{}{} [{}]", i == 0 ? "" : ", ", c10::toString(entries[i].dtype),
                        fmt::join(entries[i].sizes.begin(), entries[i].sizes.end(), ", "));
  }
  if (entries.size() > most_entries_shown) {
    text += fmt::format(" and {} more", entries.size() - most_entries_shown);
  }
  return text;
}

/// What the sizes of a call are about.
std::string contents_of(const CallNote& note) {
  switch (note.op) {
    case Op::all_reduce:
      return fmt::format("{} of {}", note.reduction == Reduction::sum ? "sum" : "max", text_of(note.outputs));
    case Op::reduce_scatter:
      return fmt::format("sum of {} to {}", text_of(note.inputs), text_of(note.outputs));
    case Op::all_gather:
      return fmt::format("{} from {}", text_of(note.outputs), text_of(note.inputs));
    case Op::all_to_all:
      return fmt::format("{} against {}", text_of(note.inputs), text_of(note.outputs));
    case Op::broadcast:
      return fmt::format("{} from index {}", text_of(note.outputs), note.root);
    case Op::send:
      return fmt::format("{} to {}", text_of(note.inputs), note.peer);
    case Op::recv:
      return fmt::format("{} from {}", text_of(note.outputs), note.peer);
    case Op::barrier:
      break;
  }
  return "";
}

bool same_entry(const CallNote::Entry& a, const CallNote::Entry& b) {
  return a.dtype == b.dtype && a.sizes == b.sizes;
}

bool same_dtype(const CallNote::Entry& a, const CallNote::Entry& b) {
  return a.dtype == b.dtype;
}

template <class Same>
bool all_same(const std::vector<CallNote::Entry>& a, const std::vector<CallNote::Entry>& b, Same same) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

}  // namespace

std::string_view name_of(Op op) {
  return op_names[static_cast<std::size_t>(op)];
}

std::int64_t bytes_to_receive(const Call& call, int rank, int size) {
  switch (call.op) {
    case Op::all_reduce:
      return layout::all_reduce_bytes(bytes_of(call.outputs), size);
    case Op::reduce_scatter:
      return layout::reduce_scatter_bytes(bytes_of(call.inputs), size);
    case Op::all_gather:
      return layout::all_gather_bytes(bytes_gathered(call), size);
    case Op::all_to_all:
      return bytes_of(call.outputs) -
             static_cast<std::int64_t>(call.outputs[static_cast<std::size_t>(rank)].nbytes());
    case Op::broadcast:
    case Op::recv:
      return rank == call.peer ? 0 : bytes_of(call.outputs);
    case Op::send:
    case Op::barrier:
      break;
  }
  return 0;
}

CallNote::CallNote(const Call& call, std::string group_name, std::int64_t number, std::string peer_name)
    : op(call.op),
      reduction(call.reduction),
      root(call.op == Op::broadcast ? call.peer : -1),
      outputs(entries_of(call.outputs)),
      inputs(entries_of(call.inputs)),
      label(call.label),
      group(std::move(group_name)),
      sequence(number),
      peer(std::move(peer_name)) {}

std::string CallNote::text() const {
  const std::string contents = contents_of(*this);
  return fmt::format("{} {} of group {} ({}{}\"{}\")", name_of(op), sequence, group, contents,
                     contents.empty() ? "" : ", ", label);
}

bool same_collective(const CallNote& a, const CallNote& b) {
  if (a.op != b.op || a.reduction != b.reduction || a.root != b.root || a.label != b.label) {
    return false;
  }
  switch (a.op) {
    case Op::all_reduce:
    case Op::broadcast:
      return all_same(a.outputs, b.outputs, same_entry);
    case Op::reduce_scatter:  // the rows of outputs differ between ranks
      return all_same(a.inputs, b.inputs, same_entry) && all_same(a.outputs, b.outputs, same_dtype);
    case Op::all_gather:
      return all_same(a.outputs, b.outputs, same_entry) && all_same(a.inputs, b.inputs, same_dtype);
    case Op::all_to_all:  // sizes are a matter between each two ranks: same_message
    case Op::send:
    case Op::recv:
    case Op::barrier:
      break;
  }
  return true;
}

bool same_message(const CallNote::Entry& sent, const CallNote::Entry& received) {
  const auto empty = [](const CallNote::Entry& e) {
    return std::find(e.sizes.begin(), e.sizes.end(), 0) != e.sizes.end();
  };
  return sent.dtype == received.dtype && (sent.sizes == received.sizes || (empty(sent) && empty(received)));
}

}  // namespace ndmesh::comm
