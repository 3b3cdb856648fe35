#include "ndmesh/plan/memory/stage_memory.h"

#include <algorithm>

#include "ndmesh/plan/memory/sizes.h"

namespace ndmesh::plan {
namespace {

class Walk {
 public:
  explicit Walk(const StageInput& input)
      : problem_(input.problem),
        profile_(input.problem.profile.memory),
        candidate_(input.candidate),
        bytes_(input.bytes),
        activations_(input.activations),
        units_(input.units),
        parts_(input.parts) {
    for (std::size_t kind = 0; kind < unit_kinds; ++kind) {
      if (units_.counts[kind] > 0) states_.add(bytes_[kind], units_.counts[kind]);
    }
    for (const UnitKind kind : {UnitKind::dense, UnitKind::moe, UnitKind::mtp}) {
      if (units_.count(kind) == 0) continue;
      if (unit(kind).gathered > block_.gathered) {
        block_.gathered = unit(kind).gathered;
        block_.gathered_norms = unit(kind).gathered_norms;
        block_.gathered_attention = unit(kind).gathered_attention;
      }
      block_.whole_gradients = std::max(block_.whole_gradients, unit(kind).whole_gradients);
      block_.largest = std::max(block_.largest, unit(kind).largest);
      block_.arriving = std::max(block_.arriving, unit(kind).arriving);
    }
    kept_ = kept_on(units_, activations_, candidate_.recompute);
  }

  Moments moments() const {
    Moments moments;
    moments.host = states_.host + (candidate_.offload_activations ? kept_.bytes : 0);
    moments.step = states(true);
    moments.loss = moments.block_backward = moments.end_backward = states(false);
    if (has(UnitKind::last)) at_loss(moments.loss);
    at_block(moments.block_backward);
    if (has(UnitKind::first)) at_end(moments.end_backward);
    return moments;
  }

 private:
  const UnitBytes& unit(UnitKind kind) const { return bytes_[static_cast<std::size_t>(kind)]; }
  bool has(UnitKind kind) const { return units_.count(kind) > 0; }
  std::int64_t ranks() const { return candidate_.mesh.dp_shard * candidate_.mesh.cp; }
  std::int64_t compute() const { return ndmesh::bytes_of(problem_.precision.compute); }
  std::int64_t wide_bytes() const { return ndmesh::bytes_of(wide(problem_.precision.compute)); }

  /// A runtime without working copies casts by gathering, even from one rank.
  bool gathers() const {
    return candidate_.zero == 3 && (ranks() > 1 || !profile_.working_copy || all_on_host());
  }
  bool reduces_into_shards() const { return candidate_.zero >= 2 && (ranks() > 1 || all_on_host()); }
  bool all_on_host() const { return candidate_.offload == job::Offload::all; }
  bool several_micro_batches() const { return micro_batches(problem_, candidate_) > 1; }

  bool whole_gradients_wait() const {
    return reduces_into_shards() && several_micro_batches() &&
           (profile_.unsynced == Unsynced::always ||
            (profile_.unsynced == Unsynced::pipeline && candidate_.mesh.pp > 1));
  }

  /// Parameters, gradients, moments, and what exists all the time. Gradients that are freed after a step
  /// exist from the first backward on: at the step always, before only when an earlier micro-batch has left
  /// some.
  MemoryBytes states(bool at_step) const {
    MemoryBytes bytes;
    bytes[MemoryCategory::parameters] = states_.parameters;
    bytes[MemoryCategory::master_weights] = states_.master_weights;
    bytes[MemoryCategory::optimizer] = states_.optimizer;
    const bool exist = at_step || !profile_.frees_gradients || several_micro_batches();
    bytes[MemoryCategory::gradients] = exist ? states_.gradients : 0;
    if (whole_gradients_wait()) {
      bytes[MemoryCategory::gradients] += widened(states_.whole_gradients);
    }
    bytes[MemoryCategory::buffers] =
        profile_.bucket_bytes + dummy_gradient_bytes(problem_, parts_, units_.counts);
    bytes[MemoryCategory::workspace] = profile_.workspace + rotary_tables();
    bytes[MemoryCategory::activations] = activations_.inputs;
    return bytes;
  }

  std::int64_t widened(std::int64_t gradients) const {
    return profile_.wide_reduction ? gradients / compute() * wide_bytes() : gradients;
  }

  std::int64_t rotary_tables() const {
    const model::ModelSpec& model = problem_.model;
    const std::int64_t dim = model.latent ? model.latent->rope_dim : model.rotary_dim();
    const std::int64_t kinds = model.learned_positions ? 0 : model.rope_local_theta ? 2 : 1;
    return kinds * 2 * rounded(problem_.seq_len * dim / 2 * wide_bytes());
  }

  void at_loss(MemoryBytes& bytes) const {
    const bool all_forwards_first =
        candidate_.mesh.pp > 1 && candidate_.schedule == schedule::Kind::gpipe && !profile_.chunks_loss;
    const std::int64_t losses = all_forwards_first ? units_.chunk_micro_batches / units_.chunks : 1;
    bytes[MemoryCategory::activations] += kept_on_device() + losses * activations_.ends + sent_messages();
    bytes[MemoryCategory::logits] = (losses + units_.count(UnitKind::mtp)) * activations_.logits;
    bytes[MemoryCategory::buffers] += boundary_buffers();
    if (profile_.chunks_loss) {
      bytes[MemoryCategory::buffers] += head_gradient() + head_sum();
    }
    bytes[MemoryCategory::gathered] =
        gathered(unit(UnitKind::last).gathered + units_at_a_time(profile_.gathered_units - 1));
  }

  void at_block(MemoryBytes& bytes) const {
    const bool ends_wait = profile_.chunks_loss && has(UnitKind::last);
    const std::int64_t ends = ends_wait ? activations_.ends : 0;
    if (!candidate_.offload_activations) {
      bytes[MemoryCategory::activations] += kept_.bytes + kept_.backward + ends;
    } else if (kept_.recomputed > 0) {
      bytes[MemoryCategory::activations] += activations_.boundary + kept_.backward + ends;
    } else {
      bytes[MemoryCategory::activations] += brought_back();
    }
    bytes[MemoryCategory::activations] += sent_messages();
    bytes[MemoryCategory::buffers] += waiting_head_gradient() + waiting_table_gradient() + block_gradients();
    bytes[MemoryCategory::gathered] = gathered(units_at_a_time(profile_.gathered_units));
  }

  /// What was received waits with the weight gradients that read it, where those come later.
  void at_end(MemoryBytes& bytes) const {
    if (splits_backward()) {
      bytes[MemoryCategory::buffers] += boundary_buffers();
    }
    const UnitBytes& first = unit(UnitKind::first);
    bytes[MemoryCategory::gathered] = gathered(first.gathered);
    if (reduces_into_shards()) {
      const std::int64_t waiting = profile_.unit_blocks == 0 ? 0 : block_.whole_gradients;  // parts: of norms
      bytes[MemoryCategory::buffers] +=
          waiting + reduction_of(first.whole_gradients) + arriving(first.arriving);
    } else if (!profile_.accumulates_in_place) {
      bytes[MemoryCategory::buffers] += first.largest;
    }
    bytes[MemoryCategory::buffers] += waiting_head_gradient();
  }

  std::int64_t kept_on_device() const { return candidate_.offload_activations ? 0 : kept_.bytes; }

  /// Of the block whose backward needs most when what it reads comes from the host.
  std::int64_t brought_back() const {
    std::int64_t most = 0;
    for (std::size_t kind = 0; kind < activations_.blocks.size(); ++kind) {
      if (units_.counts[kind] > 0) most = std::max(most, activations_.blocks[kind].brought_back);
    }
    return most;
  }

  /// A pipeline rank holds what it receives next beside what it works on. Where that is one message at a time, it is a
  /// gradient, which the last stage does not receive.
  std::int64_t boundary_buffers() const {
    const bool receives_none = profile_.received_messages == 1 && units_.chunks == 1 && has(UnitKind::last);
    if (candidate_.mesh.pp == 1 || receives_none) return 0;
    return std::min<std::int64_t>(units_.chunks > 1 ? 2 : 1, profile_.received_messages) *
           activations_.boundary;
  }

  /// What it has sent and peers have not read yet.
  std::int64_t sent_messages() const {
    return candidate_.mesh.pp == 1 ? 0 : profile_.sent_messages * activations_.boundary;
  }

  /// A loss by chunks makes the head's gradient in forward, where that of a sharded or tied head waits for
  /// backward's end.
  std::int64_t head_gradient() const {
    return problem_.model.tied ? unit(UnitKind::first).largest : unit(UnitKind::last).largest;
  }
  std::int64_t waiting_head_gradient() const {
    const bool waits =
        profile_.chunks_loss && has(UnitKind::last) && (reduces_into_shards() || problem_.model.tied);
    return waits ? heads_waiting() * head_gradient() : 0;
  }

  bool splits_backward() const { return plan::splits_backward(problem_, candidate_); }

  /// Where weight gradients come later and go to a shard, finished ones of tables wait with them: the head's of every
  /// micro-batch in flight where the last stage lags, the input table's of one.
  std::int64_t heads_waiting() const {
    const bool lags = splits_backward() && reduces_into_shards() && units_.chunks == 1;
    return lags ? units_.chunk_micro_batches : 1;
  }
  std::int64_t waiting_table_gradient() const {
    return splits_backward() && reduces_into_shards() && has(UnitKind::first) ? unit(UnitKind::first).largest
                                                                              : 0;
  }

  /// bfloat16: the head's gradient over several chunks is summed wide beside the product of each.
  std::int64_t head_sum() const {
    const bool several = candidate_.micro * problem_.seq_len > problem_.loss_chunk && problem_.loss_chunk > 0;
    return compute() == 2 && several ? head_gradient() / compute() * wide_bytes() : 0;
  }

  /// Beside what was received, which goes with the first block's backward.
  std::int64_t block_gradients() const {
    if (!reduces_into_shards()) {
      return boundary_buffers() + (profile_.accumulates_in_place ? 0 : block_.largest);
    }
    const auto of_blocks = [&](std::int64_t units) {
      return reduction_of(blocks_of(units) * block_.whole_gradients);
    };
    return std::max(boundary_buffers() + of_blocks(1), of_blocks(profile_.reduced_units)) +
           arriving(blocks_of(1) * block_.arriving);
  }

  /// Reduced gradients of a unit before they are sent to the host, and of the one before it, which dp_replicate still sums.
  std::int64_t arriving(std::int64_t of_unit) const {
    return candidate_.mesh.dp_replicate > 1 ? of_unit + blocks_of(1) * block_.arriving : of_unit;
  }

  std::int64_t reduction_of(std::int64_t gradients) const {
    return gradients + (profile_.wide_reduction ? gradients / compute() * wide_bytes() : 0);
  }

  /// Blocks in so many units; parts of a block count as one.
  std::int64_t blocks_of(std::int64_t units) const {
    const std::int64_t blocks =
        profile_.unit_blocks > 0 ? units * profile_.unit_blocks : std::min<std::int64_t>(units, 1);
    return std::clamp<std::int64_t>(blocks, 0, units_.blocks());
  }

  /// Bytes of `units` units that are whole at a time: the one that computes, and as many ahead as fit.
  std::int64_t units_at_a_time(std::int64_t units) const {
    const std::int64_t ends = profile_.ends_stay_gathered ? ends_gathered() : 0;
    while (units > 1 && profile_.gathered_limit > 0 &&
           ends + bytes_of_units(units) > profile_.gathered_limit) {
      --units;
    }
    return bytes_of_units(units);
  }

  std::int64_t bytes_of_units(std::int64_t units) const {
    return profile_.unit_blocks > 0 ? blocks_of(units) * block_.gathered : bytes_of_parts(units);
  }

  /// Units are attention, feed-forward, and the block around both, of which the norms are left: gathered until the
  /// block is done.
  std::int64_t bytes_of_parts(std::int64_t units) const {
    const std::int64_t norms = block_.gathered_norms;
    const std::int64_t attention = block_.gathered_attention;
    const std::int64_t feed_forward = block_.gathered - norms - attention;
    const std::array<std::int64_t, 3> cycle = {norms, attention, feed_forward};
    const std::int64_t window = std::clamp<std::int64_t>(units, 0, 3 * units_.blocks());
    std::int64_t most = 0;
    for (std::int64_t first = 0; first < 3; ++first) {
      std::int64_t bytes = first > 0 ? norms : 0;
      for (std::int64_t i = first; i < first + window; ++i) {
        bytes += cycle[static_cast<std::size_t>(i % 3)];
      }
      most = std::max(most, bytes);
    }
    return window > 0 ? most : 0;
  }

  std::int64_t ends_gathered() const {
    return (has(UnitKind::first) ? unit(UnitKind::first).gathered : 0) +
           (has(UnitKind::last) ? unit(UnitKind::last).gathered : 0);
  }

  /// Whole parameters at an instant that needs `needed` of them.
  std::int64_t gathered(std::int64_t needed) const {
    if (!gathers()) return 0;
    if (!candidate_.reshard) return states_.gathered;
    if (profile_.most_gathered > 0) return std::min(needed, profile_.most_gathered * compute());
    if (!profile_.ends_stay_gathered) return needed;
    return ends_gathered() + units_at_a_time(profile_.gathered_units);
  }

  const Problem& problem_;
  const MemoryProfile& profile_;
  const Candidate& candidate_;
  const ModelBytes& bytes_;
  const Activations& activations_;
  const StageUnits& units_;
  const Parts& parts_;
  UnitBytes states_;  ///< of all units together
  UnitBytes block_;   ///< the largest of each, over the kinds of block
  KeptActivations kept_;
};

}  // namespace

const MemoryBytes& Moments::largest() const {
  const auto moments = all();
  return **std::max_element(moments.begin(), moments.end(), [](const MemoryBytes* a, const MemoryBytes* b) {
    return a->total() < b->total();
  });
}

MemoryBytes Moments::peaks() const {
  MemoryBytes peaks;
  for (const MemoryBytes* bytes : all()) {
    for (std::size_t c = 0; c < memory_category_count; ++c) {
      peaks.by_category[c] = std::max(peaks.by_category[c], bytes->by_category[c]);
    }
  }
  return peaks;
}

Moments stage_moments(const StageInput& input) {
  return Walk(input).moments();
}

std::int64_t states_of(const MemoryBytes& bytes) {
  return bytes[MemoryCategory::parameters] + bytes[MemoryCategory::master_weights] +
         bytes[MemoryCategory::gradients] + bytes[MemoryCategory::optimizer];
}

}  // namespace ndmesh::plan
