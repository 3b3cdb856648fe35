#include "ndmesh/nn/cpu_attention.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ndmesh/base/integers.h"
#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/cpu_attention_loops.h"
#include "ndmesh/nn/cpu_product.h"

namespace ndmesh::nn {
namespace {

using cpu::GroupedRows;
using cpu::Operand;

constexpr std::int64_t tile_keys = 64;
constexpr std::int64_t tile_columns = 128;
constexpr std::int64_t lanes = 16;

/// What all heads have in common. Columns are the queries of all heads that share a key/value head: column c is
/// head c % group at position c / group.
struct Problem {
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t size = 0;
  AttentionOptions options;

  Problem(const Kernels::AttentionInputs& in, const AttentionOptions& options_)
      : queries(in.q_BSND.size(1)),
        keys(in.k_BSKD.size(1)),
        heads(in.q_BSND.size(2)),
        kv_heads(in.k_BSKD.size(2)),
        size(in.q_BSND.size(3)),
        options(options_) {}

  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t columns() const { return queries * group(); }
  std::int64_t widest() const { return std::min(tile_columns, round_up(columns(), lanes)); }
  std::int64_t newest(std::int64_t column) const { return options.past + column / group(); }
  std::int64_t oldest(std::int64_t column) const {
    return options.window > 0 ? std::max<std::int64_t>(0, newest(column) - options.window + 1) : 0;
  }
  cpu::ScoreForm form() const {
    const double scale = options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<double>(size));
    return {static_cast<float>(scale), static_cast<float>(options.softcap)};
  }
};

/// Hands out pieces of one block of memory; from address 0 it only measures.
class Arena {
 public:
  explicit Arena(std::uintptr_t base) : base_(base) {}
  template <typename T>
  T* take(std::int64_t count) {
    const std::uintptr_t address = base_ + static_cast<std::uintptr_t>(used_);
    used_ = round_up(used_ + count * static_cast<std::int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
  std::int64_t used() const { return used_; }

 private:
  std::uintptr_t base_;
  std::int64_t used_ = 0;
};

/// The columns [begin, begin + count) and which keys they see.
struct ColumnTile {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t padded = 0;
  std::int32_t* oldest;
  std::int32_t* newest;

  ColumnTile(const Problem& p, Arena& arena)
      : oldest(arena.take<std::int32_t>(p.widest())), newest(arena.take<std::int32_t>(p.widest())) {}

  /// Padding sees what the last column sees.
  void take(const Problem& p, std::int64_t first) {
    begin = first;
    count = std::min(tile_columns, p.columns() - first);
    padded = round_up(count, lanes);
    for (std::int64_t c = 0; c < padded; ++c) {
      const std::int64_t column = begin + std::min(c, count - 1);
      oldest[c] = static_cast<std::int32_t>(p.oldest(column));
      newest[c] = static_cast<std::int32_t>(p.newest(column));
    }
  }
  std::int64_t first_key() const { return oldest[0] / tile_keys * tile_keys; }
  std::int64_t end_key() const { return newest[count - 1] + 1; }
};

/// Keys [key, key + keys) against those columns of a tile that see some of them: `columns` from `first` on.
struct Crossing {
  std::int64_t key;
  std::int64_t keys;
  std::int64_t first;
  std::int64_t columns;
  cpu::Sight sight;

  Crossing(const Problem& p, const ColumnTile& tile, std::int64_t key_)
      : key(key_), keys(std::min(tile_keys, tile.end_key() - key_)) {
    const std::int64_t unseen = (key - p.options.past) * p.group() - tile.begin;
    first = std::max<std::int64_t>(0, unseen / lanes * lanes);
    columns = tile.padded - first;
    const bool all = key + keys - 1 <= tile.newest[first] && tile.oldest[tile.count - 1] <= key;
    sight = all ? cpu::Sight{nullptr, nullptr} : cpu::Sight{tile.oldest + first, tile.newest + first};
  }
};

/// Rows of memory as [units of rows][size], then turned to [size][rows]: how a product reads them from the left
/// along the rows. `zipped` is scratch for tile_keys rows.
template <typename T>
void turn_rows(const GroupedRows<const T>& rows, std::int64_t count, std::int64_t size, T* zipped,
               Operand<T> to) {
  for (std::int64_t begin = 0; begin < count; begin += tile_keys) {
    const std::int64_t end = std::min(count, begin + tile_keys);
    cpu::ZipRows<T>{rows, zipped, size}.run({begin, end});
    cpu::TransposeUnits{zipped, size, to.data + begin, to.stride / cpu::pack<T>, size}.run(
        {0, round_up(end - begin, cpu::pack<T>) / cpu::pack<T>});
  }
}

// ---- forward

template <typename T>
struct Heads {
  GroupedRows<const T> q;
  Operand<const T> k;
  Operand<const T> v;
  GroupedRows<float> lse;

  GroupedRows<const T> k_rows() const { return {k.data, 1, k.stride, 0}; }
  GroupedRows<const T> v_rows() const { return {v.data, 1, v.stride, 0}; }
};

template <typename T>
class Forward {
 public:
  Forward(const Problem& p, Arena arena)
      : p_(p),
        arena_(arena),
        values_{arena_.take<T>(p.size * round_up(p.keys, 2)), round_up(p.keys, 2)},
        queries_(arena_.take<T>(p.widest() * p.size)),
        query_units_(arena_.take<T>(p.widest() * p.size)),
        zipped_(arena_.take<T>(tile_keys * p.size)),
        scores_(arena_.take<float>(tile_keys * p.widest())),
        weights_(sizeof(T) == 4 ? reinterpret_cast<T*>(scores_) : arena_.take<T>(tile_keys * p.widest())),
        sums_(arena_.take<float>(p.size * p.widest())),
        largest_(arena_.take<float>(p.widest())),
        total_(arena_.take<float>(p.widest())),
        factors_(arena_.take<float>(p.widest())),
        tile_(p, arena_) {}
  std::int64_t bytes() const { return arena_.used(); }

  void run(const Heads<T>& in, const GroupedRows<T>& out) {
    turn_rows(in.v_rows(), p_.keys, p_.size, zipped_, values_);
    for (std::int64_t column = 0; column < p_.columns(); column += tile_columns) {
      tile_.take(p_, column);
      cpu::GatherRows<T>{in.q, queries_, p_.size, tile_.padded}.run({column, column + tile_.count});
      cpu::TransposeUnits{queries_, p_.size / cpu::pack<T>, query_units_, tile_.padded,
                          p_.size / cpu::pack<T>}
          .run({0, tile_.padded});
      std::fill_n(largest_, tile_.padded, std::numeric_limits<float>::lowest());
      std::fill_n(total_, tile_.padded, 0.0F);
      for (std::int64_t key = tile_.first_key(); key < tile_.end_key(); key += tile_keys) {
        add_keys(in, Crossing(p_, tile_, key));
      }
      finish(in.lse, out);
    }
  }

 private:
  void add_keys(const Heads<T>& in, const Crossing& x) {
    const std::int64_t wide = tile_.padded;
    cpu::multiply<T>({x.keys, x.columns, p_.size}, in.k.from_row(x.key),
                     {query_units_ + x.first * cpu::pack<T>, wide}, {scores_ + x.first, wide}, false);
    cpu::SoftmaxTile<T>{scores_ + x.first,
                        weights_ + x.first * cpu::pack<T>,
                        largest_ + x.first,
                        total_ + x.first,
                        factors_ + x.first,
                        x.columns,
                        wide,
                        x.key,
                        p_.form(),
                        x.sight}
        .run({0, x.keys});
    const bool add = x.key > tile_.first_key();
    if (add) {
      cpu::ScaleColumns{sums_ + x.first, factors_ + x.first, x.columns, wide}.run({0, p_.size});
    }
    cpu::multiply<T>({p_.size, x.columns, round_up(x.keys, cpu::pack<T>)},
                     {values_.data + x.key, values_.stride}, {weights_ + x.first * cpu::pack<T>, wide},
                     {sums_ + x.first, wide}, add);
  }

  void finish(const GroupedRows<float>& lse, const GroupedRows<T>& out) {
    for (std::int64_t c = 0; c < tile_.count; ++c) {
      factors_[c] = 1.0F / total_[c];
      *lse.at(tile_.begin + c) = largest_[c] + std::log(total_[c]);
    }
    cpu::StoreRows<T>{sums_, factors_, out, p_.size, 1, tile_.padded}.run(
        {tile_.begin, tile_.begin + tile_.count});
  }

  Problem p_;
  Arena arena_;
  Operand<T> values_;  ///< [size][keys]
  T* queries_;         ///< [columns][size]
  T* query_units_;     ///< units of [size][columns]
  T* zipped_;
  float* scores_;   ///< [keys][columns]
  T* weights_;      ///< units of [keys][columns]
  float* sums_;     ///< [size][columns]
  float* largest_;  ///< [columns]
  float* total_;    ///< [columns]
  float* factors_;  ///< [columns]
  ColumnTile tile_;
};

// ---- backward

template <typename T>
struct Gradients {
  GroupedRows<const T> out;
  GroupedRows<const T> dout;
  GroupedRows<T> dq;
  GroupedRows<T> dk;
  GroupedRows<T> dv;
};

/// A tile's rows (queries, or gradients of the output) in both forms that products read from the right.
template <typename T>
struct ColumnOperand {
  T* rows;    ///< [columns][size]
  T* units;   ///< units of [size][columns]
  T* zipped;  ///< units of [columns][size]

  ColumnOperand(const Problem& p, Arena& arena)
      : rows(arena.take<T>(p.widest() * p.size)),
        units(arena.take<T>(p.widest() * p.size)),
        zipped(sizeof(T) == 4 ? rows : arena.take<T>(p.widest() * p.size)) {}

  void take(const GroupedRows<const T>& from, const ColumnTile& tile, std::int64_t size) {
    cpu::GatherRows<T>{from, rows, size, tile.padded}.run({tile.begin, tile.begin + tile.count});
    cpu::TransposeUnits{rows, size / cpu::pack<T>, units, tile.padded, size / cpu::pack<T>}.run(
        {0, tile.padded});
    if (zipped != rows) {
      cpu::ZipRows<T>{{rows, 1, size, 0}, zipped, size}.run({0, tile.padded});
    }
  }
};

template <typename T>
class Backward {
 public:
  Backward(const Problem& p, Arena arena)
      : p_(p),
        arena_(arena),
        keys_{arena_.take<T>(p.size * round_up(p.keys, 2)), round_up(p.keys, 2)},
        dk_(arena_.take<float>(p.keys * p.size)),
        dv_(arena_.take<float>(p.keys * p.size)),
        q_(p, arena_),
        dout_(p, arena_),
        out_(arena_.take<T>(p.widest() * p.size)),
        scores_(arena_.take<float>(tile_keys * p.widest())),
        dweights_(arena_.take<float>(tile_keys * p.widest())),
        weights_(piece(scores_)),
        dscores_(piece(dweights_)),
        dscore_units_(piece(dweights_)),
        dq_(arena_.take<float>(p.size * p.widest())),
        along_(arena_.take<float>(p.widest())),
        lse_(arena_.take<float>(p.widest())),
        tile_(p, arena_) {}
  std::int64_t bytes() const { return arena_.used(); }

  void run(const Heads<T>& in, const Gradients<T>& gradients) {
    turn_rows(in.k_rows(), p_.keys, p_.size, out_, keys_);
    std::fill_n(dk_, p_.keys * p_.size, 0.0F);
    std::fill_n(dv_, p_.keys * p_.size, 0.0F);
    for (std::int64_t column = 0; column < p_.columns(); column += tile_columns) {
      take_columns(in, gradients, column);
      for (std::int64_t key = tile_.first_key(); key < tile_.end_key(); key += tile_keys) {
        add_keys(in, Crossing(p_, tile_, key));
      }
      cpu::StoreRows<T>{dq_, nullptr, gradients.dq, p_.size, 1, tile_.padded}.run(
          {column, column + tile_.count});
    }
    cpu::StoreRows<T>{dk_, nullptr, gradients.dk, p_.size, p_.size, 1}.run({0, p_.keys});
    cpu::StoreRows<T>{dv_, nullptr, gradients.dv, p_.size, p_.size, 1}.run({0, p_.keys});
  }

 private:
  /// Room for a tile in T: the float tile itself where T is float.
  T* piece(float* tile) {
    return sizeof(T) == 4 ? reinterpret_cast<T*>(tile) : arena_.take<T>(tile_keys * p_.widest());
  }

  void take_columns(const Heads<T>& in, const Gradients<T>& gradients, std::int64_t column) {
    tile_.take(p_, column);
    q_.take(in.q, tile_, p_.size);
    dout_.take(gradients.dout, tile_, p_.size);
    cpu::GatherRows<T>{gradients.out, out_, p_.size, tile_.padded}.run({column, column + tile_.count});
    cpu::DotRows<T>{out_, dout_.rows, along_, p_.size}.run({0, tile_.padded});
    for (std::int64_t c = 0; c < tile_.padded; ++c) {
      lse_[c] = c < tile_.count ? *in.lse.at(column + c) : 0.0F;
    }
  }

  void add_keys(const Heads<T>& in, const Crossing& x) {
    const std::int64_t wide = tile_.padded;
    const std::int64_t units = x.first * cpu::pack<T>;
    cpu::multiply<T>({x.keys, x.columns, p_.size}, in.k.from_row(x.key), {q_.units + units, wide},
                     {scores_ + x.first, wide}, false);
    cpu::multiply<T>({x.keys, x.columns, p_.size}, in.v.from_row(x.key), {dout_.units + units, wide},
                     {dweights_ + x.first, wide}, false);
    cpu::SoftmaxBackwardTile<T>{scores_ + x.first,
                                dweights_ + x.first,
                                lse_ + x.first,
                                along_ + x.first,
                                weights_ + x.first,
                                dscores_ + x.first,
                                dscore_units_ + units,
                                x.columns,
                                wide,
                                x.key,
                                p_.form(),
                                x.sight}
        .run({0, x.keys});
    const cpu::Extent to_keys = {x.keys, p_.size, x.columns};
    cpu::multiply<T>(to_keys, {weights_ + x.first, wide}, {dout_.zipped + x.first * p_.size, p_.size},
                     {dv_ + x.key * p_.size, p_.size}, true);
    cpu::multiply<T>(to_keys, {dscores_ + x.first, wide}, {q_.zipped + x.first * p_.size, p_.size},
                     {dk_ + x.key * p_.size, p_.size}, true);
    cpu::multiply<T>({p_.size, x.columns, round_up(x.keys, cpu::pack<T>)}, {keys_.data + x.key, keys_.stride},
                     {dscore_units_ + units, wide}, {dq_ + x.first, wide}, x.key > tile_.first_key());
  }

  Problem p_;
  Arena arena_;
  Operand<T> keys_;  ///< [size][keys]
  float* dk_;        ///< [keys][size]
  float* dv_;        ///< [keys][size]
  ColumnOperand<T> q_;
  ColumnOperand<T> dout_;
  T* out_;           ///< [columns][size]; before that, scratch
  float* scores_;    ///< [keys][columns]
  float* dweights_;  ///< [keys][columns]
  T* weights_;       ///< [keys][columns]
  T* dscores_;       ///< [keys][columns]
  T* dscore_units_;  ///< units of [keys][columns]
  float* dq_;        ///< [size][columns]
  float* along_;     ///< [columns]
  float* lse_;       ///< [columns]
  ColumnTile tile_;
};

// ---- tensors

bool is_bfloat16(const at::Tensor& t) {
  return t.scalar_type() == at::kBFloat16;
}

/// Runs f(T{}) for the numbers of `t`.
template <typename F>
void with_numbers(const at::Tensor& t, const F& f) {
  is_bfloat16(t) ? f(cpu::Bf16{}) : f(float{});
}

/// Numbers of a head lie side by side.
at::Tensor dense_heads(const at::Tensor& t) {
  return t.stride(3) == 1 ? t : t.contiguous();
}

Kernels::AttentionInputs dense_heads(const Kernels::AttentionInputs& in) {
  return {dense_heads(in.q_BSND), dense_heads(in.k_BSKD), dense_heads(in.v_BSKD)};
}

template <typename T>
T* start(const at::Tensor& t, std::int64_t batch, std::int64_t head) {
  const std::int64_t offset = batch * t.stride(0) + head * t.stride(2);
  if constexpr (std::is_const_v<T>) {
    return static_cast<T*>(t.const_data_ptr()) + offset;
  } else {
    return static_cast<T*>(t.mutable_data_ptr()) + offset;
  }
}

/// The rows [position][head of the group] that belong to one key/value head.
template <typename T>
GroupedRows<T> rows_of(const at::Tensor& t, std::int64_t batch, std::int64_t kv_head, std::int64_t kv_heads) {
  const std::int64_t group = t.size(2) / kv_heads;
  return {start<T>(t, batch, kv_head * group), group, t.stride(1), t.stride(2)};
}

template <typename T>
Heads<T> heads_of(const Kernels::AttentionInputs& in, const at::Tensor& lse_BNS, std::int64_t batch,
                  std::int64_t kv_head) {
  const std::int64_t kv_heads = in.k_BSKD.size(2);
  const at::Tensor lse_BSN1 = lse_BNS.transpose(1, 2).unsqueeze(3);
  return {rows_of<const T>(in.q_BSND, batch, kv_head, kv_heads),
          {start<const T>(in.k_BSKD, batch, kv_head), in.k_BSKD.stride(1)},
          {start<const T>(in.v_BSKD, batch, kv_head), in.v_BSKD.stride(1)},
          rows_of<float>(lse_BSN1, batch, kv_head, kv_heads)};
}

/// Calls work(worker, batch, kv_head) for all heads; each thread has a Worker<T> with memory of its own.
template <typename Worker, typename Work>
void for_each_head(const Problem& p, std::int64_t batches, const Work& work) {
  const std::int64_t bytes = Worker(p, Arena(0)).bytes();
  const MemoryScope scope(MemoryCategory::workspace);
  const at::Tensor memory = at::empty({at::get_num_threads(), bytes}, at::kByte);
  const auto base = reinterpret_cast<std::uintptr_t>(memory.mutable_data_ptr());
  at::parallel_for(0, batches * p.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    Worker worker(p, Arena(base + static_cast<std::uintptr_t>(at::get_thread_num() * bytes)));
    for (std::int64_t i = begin; i < end; ++i) {
      work(worker, i / p.kv_heads, i % p.kv_heads);
    }
    cpu::release_products();
  });
}

}  // namespace

bool tiles_can(const Kernels::AttentionInputs& in) {
  constexpr std::int64_t fewest_queries = 8;
  const bool numbers = in.q_BSND.scalar_type() == at::kFloat ||
                       (is_bfloat16(in.q_BSND) && in.q_BSND.size(3) % 2 == 0 && cpu::multiplies_bfloat16());
  return numbers && (in.q_BSND.size(1) == in.k_BSKD.size(1) || in.q_BSND.size(1) >= fewest_queries);
}

Kernels::Attended tiled_attention(const Kernels::AttentionInputs& any, const AttentionOptions& options) {
  const Kernels::AttentionInputs in = dense_heads(any);
  const Problem p(in, options);
  const std::int64_t batches = in.q_BSND.size(0);
  const Kernels::Attended result = {
      at::empty({batches, p.queries, p.heads, p.size}, in.q_BSND.options()),
      at::empty({batches, p.heads, p.queries}, in.q_BSND.options().dtype(at::kFloat))};
  with_numbers(in.q_BSND, [&](auto tag) {
    using T = decltype(tag);
    for_each_head<Forward<T>>(p, batches, [&](Forward<T>& worker, std::int64_t batch, std::int64_t kv_head) {
      worker.run(heads_of<T>(in, result.lse_BNS, batch, kv_head),
                 rows_of<T>(result.out_BSND, batch, kv_head, p.kv_heads));
    });
  });
  return result;
}

Kernels::AttentionInputs tiled_attention_backward(const Kernels::AttentionInputs& any,
                                                  const Kernels::Attended& forward,
                                                  const at::Tensor& dout_BSND,
                                                  const AttentionOptions& options) {
  const Kernels::AttentionInputs in = dense_heads(any);
  const at::Tensor dout = dense_heads(dout_BSND);
  const Problem p(in, options);
  const std::int64_t batches = in.q_BSND.size(0);
  const Kernels::AttentionInputs result = {at::empty(in.q_BSND.sizes(), in.q_BSND.options()),
                                           at::empty(in.k_BSKD.sizes(), in.k_BSKD.options()),
                                           at::empty(in.v_BSKD.sizes(), in.v_BSKD.options())};
  with_numbers(in.q_BSND, [&](auto tag) {
    using T = decltype(tag);
    for_each_head<Backward<T>>(p, batches,
                               [&](Backward<T>& worker, std::int64_t batch, std::int64_t kv_head) {
                                 worker.run(heads_of<T>(in, forward.lse_BNS, batch, kv_head),
                                            {rows_of<const T>(forward.out_BSND, batch, kv_head, p.kv_heads),
                                             rows_of<const T>(dout, batch, kv_head, p.kv_heads),
                                             rows_of<T>(result.q_BSND, batch, kv_head, p.kv_heads),
                                             rows_of<T>(result.k_BSKD, batch, kv_head, p.kv_heads),
                                             rows_of<T>(result.v_BSKD, batch, kv_head, p.kv_heads)});
                               });
  });
  return result;
}

}  // namespace ndmesh::nn
