#include "ndmesh/train/batches.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include "train/scratch_folder.h"

namespace ndmesh::train {
namespace {

/// A text of `samples` windows of 4 tokens and the last target; token n is n.
std::string counting(const ScratchFolder& folder, int samples) {
  std::string text;
  for (int token = 0; token <= samples * 4; ++token) {
    text += static_cast<char>(token);
  }
  return folder.file("text", text);
}

/// First token of every sample of global batch `number` as `batch_rank` of `batch_ranks` reads it.
std::vector<std::int64_t> firsts(const TokenFiles& files, const job::BatchSection& batch, std::int64_t number,
                                 std::int64_t batch_ranks, std::int64_t batch_rank) {
  const SampleOrder order(files.size(), batch.seq_len, /*shuffle=*/true, /*seed=*/1);
  std::vector<std::int64_t> list;
  for (const MicroBatch& one : BatchReader(files, order, batch, batch_ranks, batch_rank).read(number)) {
    EXPECT_EQ(one.ids_BS.sizes(), (std::vector<std::int64_t>{batch.micro, batch.seq_len}));
    EXPECT_TRUE(one.targets_BS.equal(one.ids_BS + 1));
    for (std::int64_t row = 0; row < batch.micro; ++row) {
      list.push_back(one.ids_BS[row][0].item<std::int64_t>());
    }
  }
  return list;
}

TEST(BatchReader, RanksTogetherReadTheGlobalBatchInOrder) {
  const ScratchFolder folder;
  const TokenFiles files({counting(folder, 24)}, job::DataFormat::text);
  for (std::int64_t number = 0; number < 3; ++number) {
    const auto whole = firsts(files, {.global = 12, .micro = 12, .seq_len = 4}, number, 1, 0);
    for (const std::int64_t ranks : {1, 2, 3}) {
      for (const std::int64_t micro : {1, 2}) {
        std::vector<std::int64_t> parts;
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          const auto part = firsts(files, {.global = 12, .micro = micro, .seq_len = 4}, number, ranks, rank);
          parts.insert(parts.end(), part.begin(), part.end());
        }
        EXPECT_EQ(parts, whole) << ranks << " ranks, micro-batches of " << micro;
      }
    }
  }
}

/// Five samples, two ranks with micro-batches of two: the second batch takes its rest from the next epoch, so ranks
/// never differ in what they do, and no sample is padded or counted twice in an epoch.
TEST(BatchReader, EveryRankHasAFullBatchOverTheEndOfTheData) {
  const ScratchFolder folder;
  const TokenFiles files({counting(folder, 5)}, job::DataFormat::text);
  std::vector<std::int64_t> seen;
  for (std::int64_t number = 0; number < 5; ++number) {
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      const auto part = firsts(files, {.global = 4, .micro = 2, .seq_len = 4}, number, 2, rank);
      EXPECT_EQ(part.size(), 2U);
      seen.insert(seen.end(), part.begin(), part.end());
    }
  }
  for (int epoch = 0; epoch < 4; ++epoch) {
    EXPECT_THAT(std::vector(seen.begin() + 5 * epoch, seen.begin() + 5 * (epoch + 1)),
                testing::UnorderedElementsAre(0, 4, 8, 12, 16));
  }
}

}  // namespace
}  // namespace ndmesh::train
