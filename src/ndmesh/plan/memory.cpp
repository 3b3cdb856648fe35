#include "ndmesh/plan/memory.h"

#include <algorithm>
#include <functional>

#include "ndmesh/layout/layout.h"
#include "ndmesh/plan/sizes.h"

namespace ndmesh::plan {
namespace {

/// Parameters that are laid out, gathered and reduced together: a block, or the root with all that is in no
/// block.
struct Unit {
  std::vector<layout::ParameterLayout> parameters;
};

struct Units {
  Unit root;
  std::vector<Unit> blocks;
};

Units units_of(const job::Job& job, const model::ModelSpec& model) {
  const mesh::Mesh mesh(job.mesh, job.mesh_order);
  Units units;
  units.blocks.resize(static_cast<std::size_t>(model.layers));
  for (layout::ParameterLayout& parameter : layout::parameter_layouts(model, mesh)) {
    Unit& unit =
        parameter.spec.layer < 0 ? units.root : units.blocks[static_cast<std::size_t>(parameter.spec.layer)];
    unit.parameters.push_back(std::move(parameter));
  }
  return units;
}

using Elements = std::function<std::int64_t(const layout::ParameterLayout&)>;

/// Elements of one flat storage: every parameter starts at a multiple of 32 elements.
std::int64_t flat_elements(const Unit& unit, const Elements& elements_of) {
  std::int64_t sum = 0;
  for (const layout::ParameterLayout& parameter : unit.parameters) {
    sum += (elements_of(parameter) + 31) / 32 * 32;
  }
  return sum;
}

std::int64_t full_elements(const layout::ParameterLayout& parameter) {
  return parameter.spec.elements();
}

Elements owned_by(std::int64_t rank) {
  return [rank](const layout::ParameterLayout& parameter) { return parameter.tensor.local_elements(rank); };
}

/// One rank's share of the model.
class Budget {
 public:
  Budget(const job::Job& job, const model::ModelSpec& model, const Units& units, std::int64_t rank)
      : job_(job), model_(model), units_(units), rank_(rank), sharded_(job.mesh.dp_shard * job.mesh.cp > 1) {}

  MemoryBytes bytes() const {
    MemoryBytes bytes;
    add_states(bytes);
    if (sharded_) {
      bytes[MemoryCategory::gathered] = gathered();
    }
    bytes[MemoryCategory::buffers] = buffers();
    bytes[MemoryCategory::activations] = activations();
    bytes[MemoryCategory::logits] =
        rounded(std::min(job_.train.loss_chunk, shape().tokens()) * model_.vocab * compute());
    bytes[MemoryCategory::workspace] = rotary_tables();
    return bytes;
  }

 private:
  std::int64_t rotary_tables() const {
    return 2 * rounded(job_.batch.seq_len * model_.head_dim / 2 * owned());
  }
  std::int64_t compute() const { return bytes_of(job_.dtype); }
  std::int64_t owned() const { return bytes_of(wide(job_.dtype)); }
  MicroBatchShape shape() const { return {job_.batch.micro, job_.batch.seq_len}; }

  template <class Action>
  void for_each_unit(const Action& action) const {
    std::for_each(units_.blocks.begin(), units_.blocks.end(), action);
    action(units_.root);
  }

  /// Values, gradients and moments: 16 bytes an owned element with float32 states.
  void add_states(MemoryBytes& bytes) const {
    const auto elements_of = owned_by(rank_);
    for_each_unit([&](const Unit& unit) {
      const std::int64_t elements = flat_elements(unit, elements_of);
      const bool has_copy = !sharded_ && compute() != owned();
      bytes[has_copy ? MemoryCategory::master_weights : MemoryCategory::parameters] += elements * owned();
      bytes[MemoryCategory::parameters] += has_copy ? elements * compute() : 0;
      bytes[MemoryCategory::gradients] += elements * owned();
      for (const layout::ParameterLayout& parameter : unit.parameters) {
        bytes[MemoryCategory::optimizer] += 2 * rounded(elements_of(parameter) * owned());
      }
    });
  }

  std::int64_t full_bytes(const Unit& unit) const { return flat_elements(unit, full_elements) * compute(); }

  /// The root's parameters for the whole micro-batch, and those of the block that computes and of the ones
  /// fetched ahead.
  std::int64_t gathered() const {
    const auto layers = static_cast<std::int64_t>(units_.blocks.size());
    const std::int64_t at_once = job_.shard.reshard ? std::min(layers, 1 + job_.shard.prefetch) : layers;
    return full_bytes(units_.root) + at_once * full_bytes(units_.blocks.front());
  }

  std::int64_t largest_weight(const Unit& unit) const {
    std::int64_t largest = 0;
    for (const layout::ParameterLayout& parameter : unit.parameters) {
      largest = std::max(largest, rounded(parameter.spec.elements() * compute()));
    }
    return largest;
  }

  std::int64_t gradient_bytes(const Unit& unit) const {
    std::int64_t sum = 0;
    for (const layout::ParameterLayout& parameter : unit.parameters) {
      sum += rounded(parameter.spec.elements() * compute());
    }
    return sum;
  }

  /// Gradients on their way. The head's is made in forward and, when the root is sharded or the table is
  /// tied, waits for the end of backward; a sharded block's wait until it is complete, and one block's more
  /// until peers have read them.
  std::int64_t buffers() const {
    const std::int64_t table = rounded(model_.vocab * model_.hidden * compute());
    const bool head_waits = sharded_ || model_.tied;
    const std::int64_t at_the_end = table + (head_waits ? table : 0);
    if (!sharded_) {
      return std::max(
          {table + head_sum(), (head_waits ? table : 0) + largest_weight(units_.blocks.front()), at_the_end});
    }
    const std::int64_t block = gradient_bytes(units_.blocks.front());
    const std::int64_t in_flight = std::min<std::int64_t>(2, static_cast<std::int64_t>(units_.blocks.size()));
    return std::max({table + head_sum(), table + in_flight * block, block + at_the_end});
  }

  /// bfloat16: the head's gradient over several chunks is summed in float32 beside the product of each.
  std::int64_t head_sum() const {
    const bool several = shape().tokens() > job_.train.loss_chunk;
    return compute() == 2 && several ? rounded(model_.vocab * model_.hidden * 4) : 0;
  }

  /// What all blocks keep, and what the backward of the last one takes on top while it still holds
  /// everything.
  std::int64_t activations() const {
    const std::int64_t kept =
        static_cast<std::int64_t>(units_.blocks.size()) * total(saved_by_block(model_, shape(), job_.dtype)) +
        total(saved_by_ends(model_, shape(), job_.dtype));
    const std::int64_t in_mlp_backward = 2 * (model_.ffn - model_.hidden) * shape().tokens() * compute();
    return kept + inputs() + std::max<std::int64_t>(in_mlp_backward, 0);
  }

  /// Token ids and targets of a whole step, as 64-bit integers.
  std::int64_t inputs() const { return job::accumulation(job_) * 2 * rounded(shape().tokens() * 8); }

  const job::Job& job_;
  const model::ModelSpec& model_;
  const Units& units_;
  std::int64_t rank_;
  bool sharded_;
};

}  // namespace

std::vector<MemoryBudget> predict_memory(const job::Job& job, const model::ModelSpec& model) {
  const Units units = units_of(job, model);
  const std::int64_t world = mesh::Mesh(job.mesh, job.mesh_order).world();
  std::vector<MemoryBudget> budgets;
  for (std::int64_t rank = 0; rank < world; ++rank) {
    budgets.push_back({rank, Budget(job, model, units, rank).bytes()});
  }
  return budgets;
}

const MemoryBudget& worst(const std::vector<MemoryBudget>& budgets) {
  return *std::max_element(budgets.begin(), budgets.end(), [](const MemoryBudget& a, const MemoryBudget& b) {
    return a.bytes.total() < b.bytes.total();
  });
}

}  // namespace ndmesh::plan
