#include "ndmesh/comm/group.h"

#include <utility>

namespace ndmesh::comm {

Work::Work(std::unique_ptr<State> state) : state_(std::move(state)) {}
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(Work&&) noexcept = default;
Work::~Work() = default;

bool Work::settled() const {
  return !state_ || state_->settled();
}

void Work::wait() {
  if (state_) {
    state_->wait();
  }
}

void Work::release() {
  if (state_) {
    state_->release();
    state_.reset();
  }
}

Work Group::checked_start(Call call) {
  check_call(call, name_, rank_, size());
  return Work(start(std::move(call)));
}

Work Group::start_all_reduce(Tensors tensors, Reduction reduction, std::string label) {
  return checked_start({.op = Op::all_reduce,
                        .reduction = reduction,
                        .outputs = std::move(tensors),
                        .inputs = {},
                        .label = std::move(label)});
}

Work Group::start_reduce_scatter(Tensors outputs, Tensors inputs, bool accumulate, std::string label) {
  return checked_start({.op = Op::reduce_scatter,
                        .accumulate = accumulate,
                        .outputs = std::move(outputs),
                        .inputs = std::move(inputs),
                        .label = std::move(label)});
}

Work Group::start_all_gather(Tensors outputs, Tensors inputs, std::string label) {
  return checked_start({.op = Op::all_gather,
                        .outputs = std::move(outputs),
                        .inputs = std::move(inputs),
                        .label = std::move(label)});
}

Work Group::start_all_to_all(Tensors outputs, Tensors inputs, std::string label) {
  return checked_start({.op = Op::all_to_all,
                        .outputs = std::move(outputs),
                        .inputs = std::move(inputs),
                        .label = std::move(label)});
}

Work Group::start_broadcast(Tensors tensors, int root, std::string label) {
  return checked_start({.op = Op::broadcast,
                        .peer = root,
                        .outputs = std::move(tensors),
                        .inputs = {},
                        .label = std::move(label)});
}

Work Group::start_send(at::Tensor tensor, int to, std::string label) {
  return checked_start(
      {.op = Op::send, .peer = to, .outputs = {}, .inputs = {std::move(tensor)}, .label = std::move(label)});
}

Work Group::start_recv(at::Tensor tensor, int from, std::string label) {
  return checked_start({.op = Op::recv,
                        .peer = from,
                        .outputs = {std::move(tensor)},
                        .inputs = {},
                        .label = std::move(label)});
}

void Group::all_reduce(Tensors tensors, Reduction reduction, std::string label) {
  start_all_reduce(std::move(tensors), reduction, std::move(label)).release();
}

void Group::reduce_scatter(Tensors outputs, Tensors inputs, bool accumulate, std::string label) {
  start_reduce_scatter(std::move(outputs), std::move(inputs), accumulate, std::move(label)).release();
}

void Group::all_gather(Tensors outputs, Tensors inputs, std::string label) {
  start_all_gather(std::move(outputs), std::move(inputs), std::move(label)).release();
}

void Group::all_to_all(Tensors outputs, Tensors inputs, std::string label) {
  start_all_to_all(std::move(outputs), std::move(inputs), std::move(label)).release();
}

void Group::broadcast(Tensors tensors, int root, std::string label) {
  start_broadcast(std::move(tensors), root, std::move(label)).release();
}

void Group::send(at::Tensor tensor, int to, std::string label) {
  start_send(std::move(tensor), to, std::move(label)).release();
}

void Group::recv(at::Tensor tensor, int from, std::string label) {
  start_recv(std::move(tensor), from, std::move(label)).release();
}

void Group::barrier(std::string label) {
  checked_start({.op = Op::barrier, .outputs = {}, .inputs = {}, .label = std::move(label)}).release();
}

}  // namespace ndmesh::comm
