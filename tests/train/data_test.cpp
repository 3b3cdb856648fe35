#include "ndmesh/train/data.h"

#include <gmock/gmock.h>

#include <numeric>

#include "ndmesh/base/error.h"
#include "train/scratch_folder.h"

namespace ndmesh::train {
namespace {

using job::DataFormat;
using testing::ElementsAre;
using testing::HasSubstr;

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) {
    text += static_cast<char>(value >> (8 * i));
  }
  return text;
}

std::string words(const std::vector<std::uint16_t>& tokens) {
  std::string text;
  for (const std::uint16_t token : tokens) {
    text += little_endian(token, 2);
  }
  return text;
}

/// A token file as llm.c's data scripts write it.
std::string llmc(std::int32_t magic, std::int32_t version, std::int32_t count, const std::string& tokens) {
  std::string text = little_endian(magic, 4) + little_endian(version, 4) + little_endian(count, 4);
  text.resize(1024);
  return text + tokens;
}

std::vector<std::int64_t> tokens_of(const TokenFiles& files, std::int64_t start, std::int64_t count) {
  std::vector<std::int64_t> tokens(count);
  files.read(start, count, tokens.data());
  return tokens;
}

std::string refusal(const std::vector<std::string>& files, DataFormat format) {
  try {
    const TokenFiles opened(files, format);
  } catch (const RequestError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TokenFiles, TextIsBytes) {
  const ScratchFolder folder;
  const TokenFiles files({folder.file("a.txt", "Hi\xff\n")}, DataFormat::text);
  EXPECT_EQ(files.size(), 4);
  EXPECT_THAT(tokens_of(files, 0, 4), ElementsAre(72, 105, 255, 10));
  EXPECT_EQ(files.largest_token(), 255);
}

TEST(TokenFiles, U16IsLittleEndian) {
  const ScratchFolder folder;
  const TokenFiles files({folder.file("a.u16", std::string("\x01\x02\xff\xff\x00\x00", 6))}, DataFormat::u16);
  EXPECT_THAT(tokens_of(files, 0, 3), ElementsAre(513, 65535, 0));
  EXPECT_EQ(files.largest_token(), 65535);
}

TEST(TokenFiles, SeveralFilesAreOneSequence) {
  const ScratchFolder folder;
  const TokenFiles files(
      {folder.file("a", words({0, 1, 2})), folder.file("b", words({3})), folder.file("c", words({4, 5}))},
      DataFormat::u16);
  for (std::int64_t start = 0; start <= 6; ++start) {
    for (std::int64_t count = 0; count <= 6 - start; ++count) {
      std::vector<std::int64_t> expected(count);
      std::iota(expected.begin(), expected.end(), start);
      EXPECT_EQ(tokens_of(files, start, count), expected);
    }
  }
  std::int64_t token = 0;
  EXPECT_THROW(files.read(6, 1, &token), std::out_of_range);
  EXPECT_THROW(files.read(-1, 1, &token), std::out_of_range);
  EXPECT_THROW(files.read(1, INT64_MAX, &token), std::out_of_range);
}

TEST(TokenFiles, BinReadsLlmcHeaderOrRawTokens) {
  const ScratchFolder folder;
  const TokenFiles with({folder.file("a.bin", llmc(20240520, 1, 3, words({50256, 7, 8})))}, DataFormat::bin);
  EXPECT_THAT(tokens_of(with, 0, with.size()), ElementsAre(50256, 7, 8));
  const TokenFiles without({folder.file("b.bin", words({50256, 7}))}, DataFormat::bin);
  EXPECT_THAT(tokens_of(without, 0, without.size()), ElementsAre(50256, 7));
}

TEST(TokenFiles, RefusesBrokenLlmcHeaders) {
  const ScratchFolder folder;
  const std::string tokens = words({1, 2, 3});
  EXPECT_THAT(refusal({folder.file("version", llmc(20240520, 2, 3, tokens))}, DataFormat::bin),
              HasSubstr("version 2"));
  EXPECT_THAT(refusal({folder.file("short", llmc(20240520, 1, 4, tokens))}, DataFormat::bin),
              HasSubstr("counts 4 tokens"));
  EXPECT_THAT(refusal({folder.file("long", llmc(20240520, 1, 2, tokens))}, DataFormat::bin),
              HasSubstr("counts 2 tokens"));
  EXPECT_THAT(refusal({folder.file("negative", llmc(20240520, 1, -1, tokens))}, DataFormat::bin),
              HasSubstr("counts -1"));
  EXPECT_THAT(refusal({folder.file("cut", llmc(20240520, 1, 0, "").substr(0, 100))}, DataFormat::bin),
              HasSubstr("100 bytes"));
  EXPECT_THAT(refusal({folder.file("none", llmc(20240520, 1, 0, ""))}, DataFormat::bin),
              HasSubstr("no token"));
  EXPECT_THAT(refusal({folder.file("wide", llmc(20240801, 7, 3, tokens))}, DataFormat::bin),
              HasSubstr("32-bit tokens"));
  EXPECT_THAT(refusal({folder.file("raw", llmc(20240520, 1, 3, tokens))}, DataFormat::u16),
              HasSubstr("data.format: bin"));
}

TEST(TokenFiles, RefusesAllBrokenFilesAtOnce) {
  const ScratchFolder folder;
  const std::string message = refusal({(folder / "missing").string(), folder.file("empty", ""),
                                       folder.file("odd", "abc"), folder.path().string()},
                                      DataFormat::u16);
  EXPECT_THAT(message, HasSubstr("missing: cannot be read: No such file"));
  EXPECT_THAT(message, HasSubstr("empty: holds no token"));
  EXPECT_THAT(message, HasSubstr("odd: 3 bytes are no whole number of 16-bit tokens"));
  EXPECT_THAT(message, HasSubstr("it is a folder"));
  EXPECT_THAT(refusal({}, DataFormat::text), HasSubstr("names no file"));
}

}  // namespace
}  // namespace ndmesh::train
