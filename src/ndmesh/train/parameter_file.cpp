#include "ndmesh/train/parameter_file.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>
#include <set>

#include "ndmesh/base/error.h"
#include "ndmesh/base/memory_category.h"
#include "ndmesh/base/text.h"
#include "ndmesh/train/on_any_rank.h"
#include "ndmesh/train/safetensors.h"
#include "ndmesh/train/scalar_type.h"

namespace ndmesh::train {
namespace {

using parallel::OwnedParameter;

/// Gathers the values one by one, in order: on rank 0 for the writer, on the others because rank 0 does.
class Gatherer {
 public:
  explicit Gatherer(parallel::DataParallel& layout) : layout_(layout) {}

  at::Tensor next() { return layout_.gather_value(layout_.parameters()[done_++]); }
  void rest() {
    while (done_ < layout_.parameters().size()) {
      next();
    }
  }

 private:
  parallel::DataParallel& layout_;
  std::size_t done_ = 0;
};

void write(const std::filesystem::path& file, const std::vector<OwnedParameter>& parameters,
           Gatherer& gatherer) {
  std::vector<TensorToWrite> tensors;
  for (const OwnedParameter& parameter : parameters) {
    tensors.push_back({parameter.name, parameter.layout.shape()});
  }
  // Trained ones come first; frozen ones are of that dtype or a narrower one, and so lose nothing.
  const DType dtype = dtype_of(parameters.front().value.scalar_type()).value();
  write_safetensors(file, tensors, dtype, {{"format", "pt"}},
                    [&](const std::string&) { return gatherer.next(); });
}

/// RequestError with everything that keeps `stored` from being `parameters`.
void check(const std::filesystem::path& file, const SafetensorsFile& stored,
           const std::vector<OwnedParameter>& parameters) {
  Problems problems;
  std::set<std::string_view> known;
  for (const OwnedParameter& parameter : parameters) {
    known.insert(parameter.name);
    const auto found = stored.tensors().find(parameter.name);
    if (found == stored.tensors().end()) {
      problems.add(fmt::format("{}: lacks parameter {}", file.string(), parameter.name));
    } else if (found->second.shape != parameter.layout.shape()) {
      problems.add(fmt::format("{}: parameter {} has shape [{}] there, but [{}] in the module", file.string(),
                               parameter.name, fmt::join(found->second.shape, ", "),
                               fmt::join(parameter.layout.shape(), ", ")));
    } else if (!is_floating(found->second.dtype)) {
      problems.add(fmt::format("{}: parameter {} has dtype {} there; allowed: floating ones", file.string(),
                               parameter.name, name_of(found->second.dtype)));
    }
  }
  for (const auto& [name, tensor] : stored.tensors()) {
    if (!known.contains(name)) {
      problems.add(fmt::format("{}: tensor {} is no parameter of the module", file.string(), shown(name)));
    }
  }
  problems.raise();
}

void read(const SafetensorsFile& stored, const OwnedParameter& parameter, std::int64_t rank) {
  const std::vector<layout::Box> boxes = parameter.layout.boxes(rank);
  if (boxes.size() != 1) {
    throw RunError(parameter.name + ": a part in several boxes cannot be read from a file yet");
  }
  stored.read(parameter.name, boxes.front(), parameter.value);
}

}  // namespace

void save_parameters(const std::filesystem::path& file, parallel::DataParallel& layout,
                     comm::Communicator& communicator) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::buffers);
  Gatherer gatherer(layout);
  std::optional<RunError> failure;
  try {
    if (communicator.rank() == 0) {
      write(file, layout.parameters(), gatherer);
    }
  } catch (const RunError& error) {
    failure = error;
  }
  gatherer.rest();
  if (on_any_rank(failure.has_value(), communicator, "parameters written")) {
    throw failure ? *failure
                  : RunError(fmt::format("{}: rank 0 could not write it; its error says why", file.string()));
  }
}

void load_parameters(const std::filesystem::path& file, parallel::DataParallel& layout,
                     comm::Communicator& communicator) {
  const at::NoGradGuard no_grad;
  std::unique_ptr<SafetensorsFile> stored;
  std::optional<RequestError> refusal;
  try {
    stored = std::make_unique<SafetensorsFile>(file);
    check(file, *stored, layout.parameters());
  } catch (const RequestError& error) {
    refusal = error;
  }
  if (on_any_rank(refusal.has_value(), communicator, "parameters checked")) {
    throw refusal ? *refusal : RequestError(fmt::format("{}: another rank cannot load it", file.string()));
  }
  for (const OwnedParameter& parameter : layout.parameters()) {
    read(*stored, parameter, communicator.rank());
  }
  layout.parameters_changed();
}

}  // namespace ndmesh::train
