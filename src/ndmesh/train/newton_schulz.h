#pragma once

#include <ATen/core/Tensor.h>

namespace ndmesh::train {

/// Nearly the orthogonal factor of the matrix `x`: five Newton-Schulz steps with the quintic of Jordan et al. (Muon,
/// 2024), whose coefficients are steep at zero, so that singular values end up between about 0.7 and 1.2. Products are
/// in the dtype of `x`. A matrix of zeros gives zeros.
at::Tensor orthogonalised(const at::Tensor& x);

}  // namespace ndmesh::train
