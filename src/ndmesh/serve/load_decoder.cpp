#include <ATen/Functions.h>
#include <fmt/format.h>

#include "ndmesh/base/error.h"
#include "ndmesh/base/log.h"
#include "ndmesh/base/memory_category.h"
#include "ndmesh/model/config.h"
#include "ndmesh/nn/parameter.h"
#include "ndmesh/parallel/parameters.h"
#include "ndmesh/serve/generate.h"
#include "ndmesh/train/safetensors.h"
#include "ndmesh/train/scalar_type.h"

namespace ndmesh::serve {
namespace {

layout::Box whole(at::IntArrayRef shape) {
  layout::Box box;
  for (const std::int64_t extent : shape) {
    box.push_back({0, extent});
  }
  return box;
}

/// Gives every parameter of `decoder` its place in one flat storage.
void take_flat_storage(const std::vector<parallel::NamedParameter>& parameters) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const parallel::NamedParameter& parameter : parameters) {
    shapes.push_back(parameter.tensor.sizes().vec());
  }
  const parallel::FlatPlan plan = parallel::plan_flat(shapes);
  const MemoryScope scope(MemoryCategory::parameters);
  const at::Tensor flat = at::empty({plan.elements}, parameters.front().tensor.scalar_type());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    nn::place(parameters[i].tensor, flat, plan.offsets[i]);
  }
}

}  // namespace

std::shared_ptr<nn::Decoder> load_decoder(const std::filesystem::path& folder, DType dtype) {
  if (dtype != DType::float64 && dtype != DType::float32 && dtype != DType::bfloat16) {
    throw RequestError(
        fmt::format("a model computes in float64, float32 or bfloat16, not {}", name_of(dtype)));
  }
  const model::ModelSpec spec = model::spec_from_folder(folder);
  if (const std::vector<std::string> reasons = model::unrunnable_reasons(spec); !reasons.empty()) {
    throw RequestError(reasons);
  }
  const train::ModelWeights weights(folder, spec);
  for (const std::string& warning : weights.warnings()) {
    log_warning(warning);
  }
  auto decoder = std::make_shared<nn::Decoder>(spec, train::scalar_type(dtype));
  const std::vector<parallel::NamedParameter> parameters = parallel::distinct_parameters({decoder.get()});
  take_flat_storage(parameters);
  for (const parallel::NamedParameter& parameter : parameters) {
    weights.read(parameter.name, whole(parameter.tensor.sizes()), parameter.tensor);
  }
  return decoder;
}

}  // namespace ndmesh::serve
