#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ndmesh::comm {

enum class Op { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, send, recv, barrier };
enum class Reduction { sum, max };
using Tensors = std::vector<at::Tensor>;

std::string_view name_of(Op op);

/// One call of one rank, as a transport gets it: checked by check_call, not yet compared with the peers'.
struct Call {
  Op op = Op::barrier;
  Reduction reduction = Reduction::sum;
  bool accumulate = false;
  int peer = -1;    ///< index in the group of the root, destination or source
  Tensors outputs;  ///< also the tensors of calls that work in place
  Tensors inputs;
  std::string label;
};

/// Checks what one rank can see alone: devices aside, dtypes, shapes, counts and indices. RunError lists all
/// that is wrong with the call of member `rank` of the `size` ranks of group `group`.
void check_call(const Call& call, const std::string& group, int rank, int size);

/// Bytes that member `rank` of `size` must receive from others (the algorithm's lower bound, see layout).
std::int64_t bytes_to_receive(const Call& call, int rank, int size);

/// What a call was, without its tensors: kept for comparing calls and for messages after memory is gone.
/// Immutable once shared, so any thread may read it.
struct CallNote {
  struct Entry {
    at::ScalarType dtype = at::kFloat;
    c10::DimVector sizes;
  };

  CallNote(const Call& call, std::string group, std::int64_t sequence, std::string peer);

  Op op;
  Reduction reduction;
  int root = -1;  ///< of a broadcast
  std::vector<Entry> outputs;
  std::vector<Entry> inputs;
  std::string label;
  std::string group;
  std::int64_t sequence;  ///< counted from 1 in the group, or from sender to receiver
  std::string peer;       ///< "rank 3" for send and recv

  /// `all_reduce 12 of group dp_shard (sum of float32 [100], "gradients")`
  std::string text() const;
};

/// Whether two members' calls are the same collective: op, reduction, root, count, dtypes, global sizes, and label:
/// blocks are alike in everything but that.
bool same_collective(const CallNote& a, const CallNote& b);

/// Whether what one rank sends is what the other receives: dtype and sizes (any two empty tensors agree).
bool same_message(const CallNote::Entry& sent, const CallNote::Entry& received);

}  // namespace ndmesh::comm
