#include "ndmesh/plan/memory/saved_tensors.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ndmesh/mesh/rules.h"
#include "ndmesh/plan/integers.h"
#include "ndmesh/plan/memory/sizes.h"

namespace ndmesh::plan {
namespace {

/// Lists what a block saves. Bytes are counted as elements in the compute dtype, statistics as wide ones.
class BlockList {
 public:
  BlockList(const Problem& problem, const MicroBatch& micro)
      : model_(problem.model),
        profile_(problem.profile.memory),
        micro_(micro),
        compute_(bytes_of(problem.precision.compute)),
        wide_(bytes_of(wide(problem.precision.compute))),
        fp8_inputs_(problem.precision.fp8_products && profile_.fp8_inputs) {
    list_.reserve(32);
  }

  std::vector<SavedTensor> take(bool moe) {
    add_input_of_part("block input", "normed input, read by q, k and v", Kept::always);
    model_.latent ? add_latent_projections() : add_projections();
    add_attention();
    add_input_of_part("sum after attention", "normed sum, read by gate and up", Kept::product);
    if (moe) {
      add_experts();
    } else {
      add_feed_forward(micro_.tokens, ceil_div(model_.ffn, micro_.tp), false);
    }
    if (micro_.norm_tokens < micro_.tokens) {
      add("both outputs, scattered over tp", 2 * micro_.norm_tokens * model_.hidden, Kept::unread);
    }
    if (model_.post_norms) {
      add_post_norm("attention output before its norm");
      add_post_norm("feed-forward output before its norm");
    }
    return std::move(list_);
  }

 private:
  void add(std::string_view what, std::int64_t elements, Kept kept) {
    list_.push_back({what, rounded(elements * compute_), kept});
  }
  /// What only linears read.
  void add_input(std::string_view what, std::int64_t elements, Kept kept) {
    list_.push_back({what, rounded(elements * (fp8_inputs_ ? 1 : compute_)), kept});
  }
  void add_statistic(std::string_view what, std::int64_t elements, Kept kept) {
    list_.push_back({what, rounded(elements * wide_), kept});
  }

  std::int64_t statistics_of_norm() const { return model_.layer_norm ? 2 : 1; }

  /// A norm in front of column-parallel products. Unfused, it keeps its input and the scaled rows in the wide
  /// dtype, and nothing keeps the input itself.
  void add_norm(std::string_view input, std::string_view output, Kept input_kept) {
    const std::int64_t elements = micro_.norm_tokens * model_.hidden;
    if (profile_.fused_norms) {
      add(input, elements, input_kept);
    } else {
      add_statistic(input, elements, input_kept);
      add_statistic("its scaled rows", elements, Kept::cheap);
    }
    add_statistic("its statistics", micro_.norm_tokens * statistics_of_norm(), Kept::product);
    add_input(output, (profile_.saves_gathered_input ? micro_.tokens : micro_.norm_tokens) * model_.hidden,
              Kept::cheap);
  }

  /// What attention or feed-forward begins with: a norm, or in a model without those in front the input itself.
  void add_input_of_part(std::string_view input, std::string_view output, Kept input_kept) {
    model_.pre_norms ? add_norm(input, output, input_kept)
                     : add_input(input, micro_.norm_tokens * model_.hidden, input_kept);
  }

  void add_post_norm(std::string_view input) {
    add(input, micro_.norm_tokens * model_.hidden, Kept::product);
    add_statistic("its statistics", micro_.norm_tokens * statistics_of_norm(), Kept::product);
  }

  void add_projections() {
    const std::int64_t queries = ceil_div(model_.heads, micro_.tp) * model_.head_dim;
    const std::int64_t keys = ceil_div(model_.kv_heads, micro_.tp) * model_.head_dim;
    add("rotated queries", micro_.tokens * queries, Kept::odd_product);
    add("rotated keys", micro_.tokens * keys, Kept::product);
    add("values", micro_.tokens * keys, Kept::odd_product);
    if (model_.qk_norm) {
      add("queries before their norm", micro_.tokens * queries, Kept::product);
      add("keys before their norm", micro_.tokens * keys, Kept::product);
      const std::int64_t norms = model_.qk_norm_whole ? 2 : (queries + keys) / model_.head_dim;
      add_statistic("statistics of heads", micro_.tokens * norms, Kept::product);
    }
  }

  /// Latents lie whole on every tp rank; only what is made of them is cut by heads.
  void add_latent_projections() {
    const model::LatentAttention& latent = *model_.latent;
    const std::int64_t heads = ceil_div(model_.heads, micro_.tp);
    if (latent.query_rank > 0) {
      add("query latent", micro_.tokens * latent.query_rank, Kept::odd_product);
      add("normed query latent", micro_.tokens * latent.query_rank, Kept::cheap);
    }
    add("key-value latent and shared key", micro_.tokens * (latent.kv_rank + latent.rope_dim),
        Kept::odd_product);
    add("normed key-value latent", micro_.tokens * (latent.kv_rank + latent.rope_dim), Kept::cheap);
    add_statistic("statistics of latents", 2 * micro_.tokens, Kept::cheap);
    add("rotated queries", micro_.tokens * heads * (latent.nope_dim + latent.rope_dim), Kept::product);
    add("keys with the shared key", micro_.tokens * heads * (latent.nope_dim + latent.rope_dim),
        Kept::product);
    add("values", micro_.tokens * heads * latent.value_dim, Kept::product);
  }

  void add_attention() {
    const std::int64_t heads = ceil_div(model_.heads, micro_.tp);
    const std::int64_t outputs = heads * (model_.latent ? model_.latent->value_dim : model_.head_dim);
    if (profile_.flash_attention) {
      add_statistic("attention log-sum-exp", micro_.tokens * heads, Kept::always);
    } else {
      add("scores and probabilities of attention",
          profile_.score_copies * micro_.tokens * micro_.seq_len * heads, Kept::scores);
    }
    if (micro_.heads_exchanged) {
      add("attention output before its exchange", micro_.tokens * outputs, Kept::always);
    }
    add("attention output", micro_.tokens * outputs, Kept::always);
    if (fp8_inputs_) {
      add_input("attention output in 8 bits", micro_.tokens * outputs, Kept::always);
    }
  }

  void add_feed_forward(std::int64_t tokens, std::int64_t width, bool expert) {
    if (model_.gated) {
      add(expert ? "gate of experts" : "gate", tokens * width, expert ? Kept::product : Kept::odd_product);
      add(expert ? "up of experts" : "up", tokens * width, Kept::product);
      if (!profile_.fused_activation) {
        add("silu(gate)", tokens * width, Kept::cheap);
      }
    } else {
      add("up", tokens * width, expert ? Kept::product : Kept::odd_product);
    }
    add_input("activated, read by down", tokens * width, Kept::cheap);
    if (!expert) {
      add("feed-forward output", micro_.tokens * model_.hidden, Kept::unread);
    }
  }

  void add_experts() {
    const model::Experts& experts = *model_.experts;
    add_statistic("routes and their weights", micro_.norm_tokens * experts.count * 2, Kept::always);
    if (experts.shared_ffn > 0) {
      add_feed_forward(micro_.tokens, ceil_div(experts.shared_ffn, micro_.tp), false);
    }
    add_input("tokens in the order of experts", micro_.routed_tokens * model_.hidden, Kept::always);
    add_feed_forward(micro_.routed_tokens, ceil_div(experts.ffn, micro_.etp), true);
  }

  const model::ModelSpec& model_;
  const MemoryProfile& profile_;
  const MicroBatch& micro_;
  std::int64_t compute_;
  std::int64_t wide_;
  bool fp8_inputs_;
  std::vector<SavedTensor> list_;
};

bool survives(Kept kept, Selective selective) {
  switch (selective) {
    case Selective::nothing:
      return kept != Kept::unread;
    case Selective::attention_core:
      return kept != Kept::unread && kept != Kept::scores;
    case Selective::cheap:
      return kept != Kept::unread && kept != Kept::cheap;
    case Selective::alternate_products:
      break;
  }
  return kept == Kept::always || kept == Kept::odd_product || kept == Kept::unread;
}

}  // namespace

MicroBatch micro_batch(const Problem& problem, const Candidate& candidate) {
  const mesh::MeshSizes& mesh = candidate.mesh;
  MicroBatch micro;
  micro.tokens = ceil_div(candidate.micro * problem.seq_len, mesh.cp);
  micro.norm_tokens = candidate.sequence_parallel ? ceil_div(micro.tokens, mesh.tp) : micro.tokens;
  micro.tp = mesh.tp;
  micro.etp = mesh.etp;
  micro.seq_len = problem.seq_len;
  micro.heads_exchanged = mesh.cp > 1 && (problem.context == job::ContextKind::alltoall ||
                                          problem.context == job::ContextKind::hierarchical);
  if (problem.model.experts) {
    // Each tp rank dispatches its part of the sequence; etp ranks gather theirs.
    const double routes = static_cast<double>(ceil_div(micro.tokens, mesh.tp) * mesh.etp) *
                          static_cast<double>(problem.model.experts->per_token);
    micro.routed_tokens = static_cast<std::int64_t>(std::ceil(routes * problem.expert_skew));
  }
  return micro;
}

std::vector<SavedTensor> saved_by_block(const Problem& problem, const MicroBatch& micro, bool moe) {
  return BlockList(problem, micro).take(moe);
}

std::vector<SavedTensor> saved_by_ends(const Problem& problem, const MicroBatch& micro) {
  const std::int64_t compute = bytes_of(problem.precision.compute);
  const std::int64_t part = rounded(micro.norm_tokens * problem.model.hidden * compute);
  const std::int64_t whole = rounded(micro.tokens * problem.model.hidden * compute);
  const std::int64_t statistics = micro.norm_tokens * (problem.model.layer_norm ? 2 : 1);
  std::vector<SavedTensor> list = {
      {"output of the last block", part},
      {"its statistics", rounded(statistics * bytes_of(wide(problem.precision.compute)))},
      {"normed output, read by the head", part},
      {"gradient of the normed output", whole},
  };
  if (micro.norm_tokens < micro.tokens) {
    list.push_back({"normed output, gathered over tp", whole});
    list.push_back({"gradient of the normed output, scattered over tp", part});
  }
  return list;
}

std::int64_t total(const std::vector<SavedTensor>& saved) {
  return total(saved, Selective::nothing);
}

std::int64_t total(const std::vector<SavedTensor>& saved, Selective selective) {
  return std::accumulate(saved.begin(), saved.end(), std::int64_t{0},
                         [&](std::int64_t sum, const SavedTensor& tensor) {
                           return sum + (survives(tensor.kept, selective) ? tensor.bytes : 0);
                         });
}

std::int64_t made_again_bytes(const std::vector<SavedTensor>& saved, Selective selective) {
  std::int64_t largest = 0;
  for (const SavedTensor& tensor : saved) {
    if (selective == Selective::cheap && tensor.kept == Kept::cheap) {
      largest = std::max(largest, tensor.bytes);
    }
  }
  return largest;
}

std::int64_t backward_bytes(const Problem& problem, const MicroBatch& micro, bool moe) {
  const model::ModelSpec& model = problem.model;
  const std::int64_t compute = bytes_of(problem.precision.compute);
  const std::int64_t activated = model.gated ? 2 : 1;
  const std::int64_t hidden = problem.profile.memory.hidden_in_backward * micro.norm_tokens * model.hidden;
  std::int64_t elements = hidden + activated * micro.tokens * ceil_div(model.ffn, micro.tp);
  if (moe) {
    // Gradients of routed tokens before and after their exchange, each also in the order of the other side.
    elements = 2 * hidden +
               micro.routed_tokens * (4 * model.hidden + activated * ceil_div(model.experts->ffn, micro.etp));
  }
  return std::max<std::int64_t>(elements, 0) * compute;
}

std::int64_t brought_back_bytes(const Problem& problem, const MicroBatch& micro, bool moe) {
  const model::ModelSpec& model = problem.model;
  const std::int64_t width = moe ? micro.routed_tokens * ceil_div(model.experts->ffn, micro.etp)
                                 : micro.tokens * ceil_div(model.ffn, micro.tp);
  const std::int64_t wide_tensors = model.gated ? 5 : 3;
  return (wide_tensors * width + 2 * micro.tokens * model.hidden) * bytes_of(problem.precision.compute);
}

std::int64_t boundary_bytes(const Problem& problem, const MicroBatch& micro) {
  return rounded(micro.norm_tokens * problem.model.hidden * bytes_of(problem.precision.compute));
}

std::int64_t logits_bytes(const Problem& problem, const MicroBatch& micro, std::int64_t vocab) {
  const MemoryProfile& profile = problem.profile.memory;
  const std::int64_t tokens =
      problem.loss_chunk > 0 ? std::min(problem.loss_chunk, micro.tokens) : micro.tokens;
  const std::int64_t rows = profile.gathers_logits ? vocab * micro.tp : vocab;
  const std::int64_t compute = rounded(tokens * rows * bytes_of(problem.precision.compute));
  const std::int64_t slopes = problem.model.logits_softcap ? 1 : 0;  // of the cap, in front of the gradient
  const std::int64_t wide_copy = rounded(tokens * rows * bytes_of(wide(problem.precision.compute)));
  return (profile.logits_in_compute + slopes) * compute + profile.logits_wide * wide_copy;
}

}  // namespace ndmesh::plan
