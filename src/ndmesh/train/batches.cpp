#include "ndmesh/train/batches.h"

#include <ATen/Functions.h>

#include "ndmesh/nn/functional.h"

namespace ndmesh::train {

BatchReader::BatchReader(const TokenFiles& files, SampleOrder order, const job::BatchSection& batch,
                         std::int64_t batch_ranks, std::int64_t batch_rank)
    : files_(files),
      order_(order),
      batch_(batch),
      samples_(batch.global / batch_ranks),
      batch_rank_(batch_rank) {}

std::vector<MicroBatch> BatchReader::read(std::int64_t number) const {
  const std::int64_t first = number * batch_.global + batch_rank_ * samples_;
  std::vector<MicroBatch> batches;
  for (std::int64_t sample = 0; sample < samples_; sample += batch_.micro) {
    batches.push_back(micro_batch(first + sample));
  }
  return batches;
}

MicroBatch BatchReader::micro_batch(std::int64_t first_sample) const {
  const std::int64_t width = batch_.seq_len + 1;
  const at::Tensor tokens = at::empty({batch_.micro, width}, at::kLong);
  for (std::int64_t row = 0; row < batch_.micro; ++row) {
    files_.read(order_.start_of(first_sample + row), width, tokens.data_ptr<std::int64_t>() + row * width);
  }
  return {tokens.narrow(1, 0, batch_.seq_len).contiguous(), tokens.narrow(1, 1, batch_.seq_len).contiguous()};
}

std::int64_t valid_targets(const std::vector<MicroBatch>& batches) {
  std::int64_t valid = 0;
  for (const MicroBatch& batch : batches) {
    valid += batch.targets_BS.ne(nn::ignored).sum().item<std::int64_t>();
  }
  return valid;
}

}  // namespace ndmesh::train
