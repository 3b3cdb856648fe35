#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ndmesh/base/error.h"
#include "ndmesh/comm/group.h"
#include "ndmesh/mesh/mesh.h"

namespace ndmesh::comm {

/// What a rank is doing; each phase has its own limit on how long a peer may be waited for.
enum class Phase { setup, first_step, step, save };

struct Limits {
  std::chrono::milliseconds setup{600'000};
  std::chrono::milliseconds first_step{600'000};
  std::chrono::milliseconds step{300'000};
  std::chrono::milliseconds save{1'800'000};
};

/// One collective as one rank saw it, reported when it is released. Times are seconds; `skew` is the wait
/// until the last peer arrived, `transfer` what was spent, in wait() and release(), on moving and adding
/// bytes or waiting for peers that do. Exposed time is their sum.
struct CollectiveRecord {
  const Group* group = nullptr;
  Op op = Op::barrier;
  std::string label;
  std::int64_t bytes = 0;  ///< that this rank had to receive (layout's lower bound)
  double started = 0;      ///< on the steady clock
  double waited = 0;       ///< when wait() was first called
  double finished = 0;     ///< when this rank's outputs were complete
  double skew = 0;
  double transfer = 0;
};

/// A rank's own view of the run: who it is and its groups. Used by that rank's thread only; lives inside
/// run_ranks.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual std::int64_t rank() const = 0;
  virtual const mesh::Mesh& mesh() const = 0;
  std::int64_t world() const { return mesh().world(); }

  /// The group of this rank over `axes`, named after those of them that have more than one rank; made at the
  /// first call, the same object ever after. Not a collective.
  virtual Group& group(mesh::AxisSet axes) = 0;
  /// Those of group(axes) that are `members` (world ranks, ascending, this one among them). Named and made as above.
  virtual Group& subgroup(mesh::AxisSet axes, const std::vector<std::int64_t>& members) = 0;
  /// All ranks.
  virtual Group& everyone() = 0;

  /// From here on peers are waited for by the limit of `phase`; `what` ("step 12") appears in verdicts.
  virtual void enter_phase(Phase phase, std::string what) = 0;

  /// Called with each finished collective of this rank, on its thread. One observer; an empty one takes it
  /// away.
  virtual void observe(std::function<void(const CollectiveRecord&)> observer) = 0;
};

/// Threads of a run still compute after its verdict, and were left behind: they may use whatever `body`
/// refers to, so the caller should end the process. what() is the verdict and the ranks.
class RanksStillRunning : public RunError {
 public:
  using RunError::RunError;
};

/// Runs `body` once for every rank of `mesh`, each on a thread of its own, over the threads transport, and
/// returns when all have returned. When a rank throws, its peers are woken with an error within moments and
/// the first rank's own exception is rethrown here. Verdicts, each a RunError that names ranks and calls:
///   mismatched  the calls of a collective differ
///   dead        a rank threw or returned while others wait for it
///   stuck       every rank waits and nothing can arrive
///   late        a peer did not arrive within the limit of the phase
/// After a verdict every call of every rank throws it. A rank that computes notices at its next call:
/// run_ranks gives it the limit of its phase, or 2 s after a verdict of late, and then leaves it behind
/// (RanksStillRunning). Rank threads start with gradients on, and with autograd on the calling thread only.
/// Nothing process-wide is touched; runs may follow or overlap one another.
void run_ranks(const mesh::Mesh& mesh, const Limits& limits, const std::function<void(Communicator&)>& body);

}  // namespace ndmesh::comm
