#include <fmt/format.h>

#include "ndmesh/base/error.h"
#include "ndmesh/comm/call.h"
#include "ndmesh/layout/layout.h"

namespace ndmesh::comm {
namespace {

bool is_floating(at::ScalarType dtype) {
  return dtype == at::kDouble || dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

bool can_be_reduced(at::ScalarType dtype) {
  return is_floating(dtype) || dtype == at::kLong;
}

std::string shape_of(at::IntArrayRef sizes) {
  std::string text;
  for (const std::int64_t size : sizes) {
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  }
  return "[" + text + "]";
}

/// Of dense tensors.
bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  const auto begin = [](const at::Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.const_data_ptr()); };
  return a.nbytes() > 0 && b.nbytes() > 0 && begin(a) < begin(b) + b.nbytes() &&
         begin(b) < begin(a) + a.nbytes();
}

/// Gathers what is wrong with one call.
class CallCheck {
 public:
  CallCheck(const Call& call, int rank, int size) : call_(call), rank_(rank), size_(size) {}

  const std::vector<std::string>& run() {
    check_tensors(call_.outputs, "outputs");
    check_tensors(call_.inputs, "inputs");
    if (problems_.empty()) {  // the rest reads shapes
      check_op();
    }
    return problems_.list();
  }

 private:
  void check_tensors(const Tensors& tensors, std::string_view which) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].defined()) {
        problems_.add(fmt::format("{}[{}] is an undefined tensor", which, i));
      } else if (!tensors[i].is_contiguous()) {
        problems_.add(fmt::format("{}[{}], {}, is not contiguous; give contiguous()", which, i,
                                  shape_of(tensors[i].sizes())));
      }
    }
  }

  void check_op() {
    switch (call_.op) {
      case Op::all_reduce:
        return check_reducible(call_.outputs, "outputs");
      case Op::reduce_scatter:
        check_reducible(call_.inputs, "inputs");
        return check_parts(call_.inputs, "inputs", call_.outputs, "outputs");
      case Op::all_gather:
        return check_parts(call_.outputs, "outputs", call_.inputs, "inputs");
      case Op::all_to_all:
        check_one_each(call_.outputs, "outputs");
        check_one_each(call_.inputs, "inputs");
        return check_apart();
      case Op::broadcast:
        return check_peer("root");
      case Op::send:
        return check_peer("destination");
      case Op::recv:
        return check_peer("source");
      case Op::barrier:
        return;
    }
  }

  void check_reducible(const Tensors& tensors, std::string_view which) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!can_be_reduced(tensors[i].scalar_type())) {
        problems_.add(fmt::format(
            "{}[{}] is {}, which cannot be reduced; allowed are Double, Float, BFloat16, Half and Long",
            which, i, c10::toString(tensors[i].scalar_type())));
      }
    }
  }

  /// `part[i]` must be this rank's rows of `whole[i]`.
  void check_parts(const Tensors& whole, std::string_view whole_name, const Tensors& part,
                   std::string_view part_name) {
    if (whole.size() != part.size()) {
      problems_.add(fmt::format("there are {} {} and {} {}; they belong together one by one", whole.size(),
                                whole_name, part.size(), part_name));
      return;
    }
    for (std::size_t i = 0; i < whole.size(); ++i) {
      check_rows(whole[i], part[i], fmt::format("{}[{}]", whole_name, i),
                 fmt::format("{}[{}]", part_name, i));
      check_dtypes(call_.inputs[i].scalar_type(), call_.outputs[i].scalar_type(), i);
    }
  }

  void check_rows(const at::Tensor& whole, const at::Tensor& part, const std::string& whole_name,
                  const std::string& part_name) {
    if (whole.dim() == 0) {
      problems_.add(whole_name + " is a scalar, which has no rows; give it the shape [1]");
      return;
    }
    std::vector<std::int64_t> wanted = whole.sizes().vec();
    wanted[0] = layout::split(wanted[0], size_, rank_).size;
    if (part.sizes() != at::IntArrayRef(wanted)) {
      problems_.add(fmt::format("{} is {}; the rows of {} ({}) that belong to member {} of {} are {}",
                                part_name, shape_of(part.sizes()), whole_name, shape_of(whole.sizes()), rank_,
                                size_, shape_of(wanted)));
    }
  }

  void check_dtypes(at::ScalarType from, at::ScalarType to, std::size_t i) {
    const bool both_floating = is_floating(from) && is_floating(to);
    const bool widened = c10::elementSize(to) > c10::elementSize(from);
    if (from == to || (both_floating && (widened || call_.op == Op::all_gather))) {
      return;
    }
    problems_.add(fmt::format(
        "outputs[{}] is {} and inputs[{}] is {}; allowed is the same dtype or {} floating one", i,
        c10::toString(to), i, c10::toString(from), call_.op == Op::all_gather ? "another" : "a wider"));
  }

  void check_one_each(const Tensors& tensors, std::string_view which) {
    if (tensors.size() != static_cast<std::size_t>(size_)) {
      problems_.add(
          fmt::format("there are {} {}; the group has {} ranks, and each needs one (it may be empty)",
                      tensors.size(), which, size_));
    }
  }

  /// Peers read inputs while outputs are written.
  void check_apart() {
    for (std::size_t o = 0; o < call_.outputs.size(); ++o) {
      for (std::size_t i = 0; i < call_.inputs.size(); ++i) {
        if (share_memory(call_.outputs[o], call_.inputs[i])) {
          problems_.add(
              fmt::format("outputs[{}] and inputs[{}] share memory; give outputs of their own", o, i));
        }
      }
    }
  }

  void check_peer(std::string_view role) {
    if (call_.peer < 0 || call_.peer >= size_) {
      problems_.add(fmt::format("the {} is member {}; allowed are 0 to {}", role, call_.peer, size_ - 1));
    }
  }

  const Call& call_;
  int rank_;
  int size_;
  Problems problems_;
};

}  // namespace

void check_call(const Call& call, const std::string& group, int rank, int size) {
  const std::vector<std::string> problems = CallCheck(call, rank, size).run();
  if (problems.empty()) {
    return;
  }
  std::string text = fmt::format("{} \"{}\" of group {}:", name_of(call.op), call.label, group);
  for (const std::string& problem : problems) {
    text += "\n  " + problem;
  }
  throw RunError(text);
}

}  // namespace ndmesh::comm
