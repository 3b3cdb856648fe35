#include "ndmesh/parallel/pipeline.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iterator>

#include "ndmesh/base/clock.h"
#include "ndmesh/base/memory_category.h"
#include "ndmesh/nn/autograd.h"
#include "ndmesh/nn/withheld_gradients.h"

namespace ndmesh::parallel {
namespace {

using schedule::Action;
using schedule::ActionKind;

/// A micro-batch on its way through a chunk.
struct Pass {
  at::Tensor input;  ///< hidden states
  comm::Work input_comes;
  at::Tensor output;           ///< until it is sent or handed on
  torch::autograd::Edge from;  ///< where backward begins: keeps the graph, not the output
  at::Tensor output_gradient;  ///< 1 for the loss
  comm::Work output_gradient_comes;
  at::Tensor input_gradient;       ///< until it is sent or handed on
  nn::WithheldGradients withheld;  ///< between input_grad and weight_grad
};

bool is_compute(const Action& action) {
  return schedule::is_compute(action.kind);
}

bool ends_backward(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::weight_grad;
}

/// One execution of this rank's list.
class Run {
 public:
  Run(const std::vector<Chunk>& chunks, comm::Group* group, const schedule::Schedule& schedule,
      const std::vector<MicroBatch>& batches, const LossOptions& loss, const Pipeline::Observer& observer)
      : chunks_(chunks),
        group_(group),
        rank_(group != nullptr ? group->rank() : 0),
        shape_(schedule.shape),
        actions_(schedule.ranks[static_cast<std::size_t>(rank_)]),
        batches_(batches),
        loss_(loss),
        observer_(observer),
        passes_(chunks.size() * batches.size()) {}

  double all() {
    for (const Action& action : actions_) {
      free_what_was_sent();
      wait_for_message(action);
      const double begin = now_seconds();
      perform(action);
      if (observer_ && at::GradMode::is_enabled()) {
        observer_(action, begin, now_seconds());
      }
    }
    for (comm::Work& sent : sent_) {
      sent.release();
    }
    return loss_sum_;
  }

 private:
  void wait_for_message(const Action& action) {
    if (action.kind == ActionKind::forward) {
      pass(action).input_comes.release();
    } else if (action.kind == ActionKind::backward || action.kind == ActionKind::input_grad) {
      pass(action).output_gradient_comes.release();
    }
  }

  void perform(const Action& action) {
    switch (action.kind) {
      case ActionKind::forward:
        return forward(action);
      case ActionKind::backward:
        return backward(action);
      case ActionKind::input_grad: {
        const nn::WithheldGradients::Scope scope(pass(action).withheld);
        return backward(action);
      }
      case ActionKind::weight_grad:
        return weight_grad(action);
      case ActionKind::send_forward:
        return send(pass(action).output, stage(action) + 1, action);
      case ActionKind::receive_forward:
        return receive(pass(action).input, pass(action).input_comes, stage(action) - 1, action);
      case ActionKind::send_backward:
        return send(pass(action).input_gradient, stage(action) - 1, action);
      case ActionKind::receive_backward:
        return receive(pass(action).output_gradient, pass(action).output_gradient_comes, stage(action) + 1,
                       action);
      case ActionKind::unshard:
        return chunk_of(action).layout->unshard();
      case ActionKind::reshard:
        return chunk_of(action).layout->reshard();
      case ActionKind::reduce:
        return chunk_of(action).layout->finish_backward();
      default:
        return;  // the optimizer is the caller's
    }
  }

  // ------------------------------------------------------------------------------------------- compute

  void forward(const Action& action) {
    Pass& mine = pass(action);
    const Chunk& chunk = chunk_of(action);
    announce_forward(action);
    const at::Tensor output = chunk.model->forward(input_of(action), request_of(action));
    mine.input.reset();
    if (output.requires_grad()) {
      mine.from = torch::autograd::impl::gradient_edge(output);
    }
    if (chunk.model->part().has_head) {
      loss_sum_ += output.item<double>();
      mine.output_gradient = at::ones_like(output);
    } else {
      hand_on(output.detach(), mine.output, pass_at(stage(action) + 1, action), &Pass::input);
    }
  }

  at::Tensor input_of(const Action& action) {
    Pass& mine = pass(action);
    if (chunk_of(action).model->part().embeds) {
      return batch_of(action).ids_BS;
    }
    return at::GradMode::is_enabled() ? nn::begin_graph(mine.input, mine.input_gradient) : mine.input;
  }

  nn::Decoder::LossRequest request_of(const Action& action) const {
    return {batch_of(action).targets_BS, loss_.scale, loss_.chunk};
  }

  void backward(const Action& action) {
    Pass& mine = pass(action);
    announce_backward(action);
    if (mine.from.is_valid()) {
      nn::backward_from(std::exchange(mine.from, {}), std::exchange(mine.output_gradient, {}));
    }
    mine.output_gradient.reset();
    if (!chunk_of(action).model->part().embeds) {
      hand_on(std::exchange(mine.input_gradient, {}), mine.input_gradient, pass_at(stage(action) - 1, action),
              &Pass::output_gradient);
    }
  }

  void weight_grad(const Action& action) {
    announce_backward(action);
    pass(action).withheld.deliver();
  }

  /// To the neighbouring stage's pass when that is on this rank; else into `here`, to be sent.
  static void hand_on(at::Tensor tensor, at::Tensor& here, Pass* neighbour, at::Tensor Pass::*there) {
    (neighbour != nullptr ? neighbour->*there : here) = std::move(tensor);
  }

  void announce_forward(const Action& action) const {
    if (!at::GradMode::is_enabled()) {
      return;
    }
    DataParallel& layout = *chunk_of(action).layout;
    if (is_pass(next_compute(action), action, ActionKind::backward) ||
        is_pass(next_compute(action), action, ActionKind::input_grad)) {
      layout.begin_micro_batch(is_last_backward(*next_compute(action)));
    } else {
      layout.begin_forward();
    }
  }

  void announce_backward(const Action& action) const {
    if (!is_pass(previous_compute(action), action, ActionKind::forward)) {
      chunk_of(action).layout->begin_backward(is_last_backward(action));
    }
  }

  static bool is_pass(const Action* action, const Action& as, ActionKind kind) {
    return action != nullptr && action->kind == kind && action->chunk == as.chunk &&
           action->micro_batch == as.micro_batch;
  }

  /// `action` is one of the list.
  const Action* next_compute(const Action& action) const {
    const Action* end = actions_.data() + actions_.size();
    const Action* found = std::find_if(&action + 1, end, is_compute);
    return found == end ? nullptr : found;
  }

  const Action* previous_compute(const Action& action) const {
    const auto end = std::make_reverse_iterator(actions_.data());
    const auto found = std::find_if(std::make_reverse_iterator(&action), end, is_compute);
    return found == end ? nullptr : &*found;
  }

  /// Of its chunk in the step.
  bool is_last_backward(const Action& action) const {
    const auto found = std::find_if(actions_.rbegin(), actions_.rend(), [&](const Action& other) {
      return ends_backward(other.kind) && other.chunk == action.chunk;
    });
    return *found == action;
  }

  // ------------------------------------------------------------------------------------------ messages

  void send(at::Tensor& tensor, std::int64_t to_stage, const Action& action) {
    comm::Work work =
        group_->start_send(std::exchange(tensor, {}).contiguous(), static_cast<int>(shape_.rank_of(to_stage)),
                           label(action, action.kind == ActionKind::send_forward, to_stage));
    work.wait();
    sent_.push_back(std::move(work));
  }

  void receive(at::Tensor& tensor, comm::Work& work, std::int64_t from_stage, const Action& action) {
    const bool forward = action.kind == ActionKind::receive_forward;
    const MemoryScope scope(forward ? MemoryCategory::activations : MemoryCategory::buffers);
    tensor = empty_hidden_states(action);
    work = group_->start_recv(tensor, static_cast<int>(shape_.rank_of(from_stage)),
                              label(action, forward, stage(action)));
  }

  at::Tensor empty_hidden_states(const Action& action) const {
    const nn::Decoder& model = *chunk_of(action).model;
    const at::Tensor& ids_BS = batch_of(action).ids_BS;
    return at::empty({ids_BS.size(0), ids_BS.size(1) / model.part().sequence_parts, model.spec().hidden},
                     at::TensorOptions().dtype(model.dtype()));
  }

  static std::string label(const Action& action, bool forward, std::int64_t to_stage) {
    return fmt::format("{} of micro-batch {} for stage {}", forward ? "hidden states" : "gradient",
                       action.micro_batch, to_stage);
  }

  /// Peers may read late: what they have read meanwhile is freed, without waiting for the rest.
  void free_what_was_sent() {
    for (comm::Work& sent : sent_) {
      if (sent.settled()) {
        sent.release();
      }
    }
    std::erase_if(sent_, [](const comm::Work& sent) { return !sent.started(); });
  }

  // -------------------------------------------------------------------------------------------- places

  std::int64_t stage(const Action& action) const { return shape_.stage_of(rank_, action.chunk); }
  const Chunk& chunk_of(const Action& action) const {
    return chunks_[static_cast<std::size_t>(action.chunk)];
  }
  const MicroBatch& batch_of(const Action& action) const {
    return batches_[static_cast<std::size_t>(action.micro_batch)];
  }
  Pass& pass(const Action& action) { return pass_of(action.chunk, action.micro_batch); }
  Pass& pass_of(std::int64_t chunk, std::int64_t micro_batch) {
    return passes_[static_cast<std::size_t>(chunk) * batches_.size() + static_cast<std::size_t>(micro_batch)];
  }
  /// The same micro-batch at `stage`, if this rank runs it.
  Pass* pass_at(std::int64_t stage, const Action& action) {
    return shape_.rank_of(stage) == rank_ ? &pass_of(shape_.chunk_of(stage), action.micro_batch) : nullptr;
  }

  const std::vector<Chunk>& chunks_;
  comm::Group* group_;
  std::int64_t rank_;
  const schedule::Shape& shape_;
  const std::vector<Action>& actions_;
  const std::vector<MicroBatch>& batches_;
  const LossOptions& loss_;
  const Pipeline::Observer& observer_;
  std::vector<Pass> passes_;  ///< by chunk and micro-batch
  std::vector<comm::Work> sent_;
  double loss_sum_ = 0;
};

}  // namespace

double Pipeline::run(const schedule::Schedule& schedule, const std::vector<MicroBatch>& batches,
                     const LossOptions& loss) {
  return Run(chunks_, group_, schedule, batches, loss, observer_).all();
}

}  // namespace ndmesh::parallel
