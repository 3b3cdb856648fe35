#include <span>
#include <stdexcept>

#include "fuzz/target.h"
#include "ndmesh/train/safetensors_header.h"

/// The header of a safetensors file.
void ndmesh::fuzz::one_input(std::string_view bytes) {
  const auto file = std::as_bytes(std::span(bytes));
  const train::SafetensorsHeader header = train::read_safetensors_header(file, "model.safetensors");
  for (const auto& [name, tensor] : header.tensors) {
    if (tensor.begin > tensor.end || header.data_start + tensor.end > file.size()) {
      throw std::logic_error("a tensor lies outside of its file");
    }
  }
}
