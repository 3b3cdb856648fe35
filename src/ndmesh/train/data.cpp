#include "ndmesh/train/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <stdexcept>

#include "ndmesh/base/error.h"
#include "ndmesh/train/mapped_file.h"

namespace ndmesh::train {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read in place");

constexpr std::size_t llmc_header_bytes = 256 * sizeof(std::int32_t);
constexpr std::int32_t llmc_magic = 20240520;
constexpr std::int32_t llmc_magic_32_bit = 20240801;  // llm.c's files of 32-bit tokens

using Bytes = std::span<const std::byte>;

/// First bytes of a file as llm.c's header would hold them: magic, version, token count; zeros where the file
/// is shorter.
std::array<std::int32_t, 3> leading_words(Bytes bytes) {
  std::array<std::int32_t, 3> words{};
  const Bytes head = bytes.first(std::min(bytes.size(), sizeof words));
  std::copy(head.begin(), head.end(), std::as_writable_bytes(std::span(words)).begin());
  return words;
}

/// The token bytes behind an llm.c header.
Bytes without_llmc_header(Bytes bytes, const std::string& file) {
  if (bytes.size() < llmc_header_bytes) {
    throw RequestError(
        fmt::format("{}: begins as an llm.c token file but has {} bytes; its header alone takes {}", file,
                    bytes.size(), llmc_header_bytes));
  }
  const auto [magic, version, count] = leading_words(bytes);
  if (version != 1) {
    throw RequestError(
        fmt::format("{}: llm.c token file of version {}; version 1 (16-bit tokens) is read", file, version));
  }
  const Bytes tokens = bytes.subspan(llmc_header_bytes);
  if (count < 0 || tokens.size() != static_cast<std::size_t>(count) * 2) {
    throw RequestError(fmt::format(
        "{}: the llm.c header counts {} tokens of 2 bytes, but {} bytes follow it: the file is cut short "
        "or damaged",
        file, count, tokens.size()));
  }
  return tokens;
}

/// The bytes of `file` that are tokens, checked.
Bytes token_bytes(Bytes bytes, const std::string& file, job::DataFormat format) {
  if (format != job::DataFormat::text) {
    const std::int32_t magic = leading_words(bytes)[0];
    if (magic == llmc_magic_32_bit) {
      throw RequestError(fmt::format(
          "{}: llm.c token file of 32-bit tokens (magic {}), which is not built; write its tokens as u16",
          file, magic));
    }
    if (magic == llmc_magic && format == job::DataFormat::u16) {
      throw RequestError(fmt::format(
          "{}: begins with llm.c's header, which data.format u16 would read as tokens; set data.format: bin",
          file));
    }
    if (magic == llmc_magic) {
      bytes = without_llmc_header(bytes, file);
    }
    if (bytes.size() % 2 != 0) {
      throw RequestError(
          fmt::format("{}: {} bytes are no whole number of 16-bit tokens", file, bytes.size()));
    }
  }
  if (bytes.empty()) {
    throw RequestError(fmt::format("{}: holds no token", file));
  }
  return bytes;
}

}  // namespace

struct TokenFiles::Part {
  Part(const std::string& file, job::DataFormat format, std::int64_t first_token)
      : mapped(file),
        tokens(token_bytes(mapped.bytes(), file, format)),
        width(format == job::DataFormat::text ? 1 : 2),
        first(first_token),
        count(static_cast<std::int64_t>(tokens.size()) / width) {}

  const std::uint8_t* as_bytes() const { return reinterpret_cast<const std::uint8_t*>(tokens.data()); }
  // Aligned: a mapping starts on a page and llm.c's header is a multiple of 2.
  const std::uint16_t* as_words() const { return reinterpret_cast<const std::uint16_t*>(tokens.data()); }

  MappedFile mapped;
  Bytes tokens;
  std::int64_t width;  ///< bytes of a token
  std::int64_t first;  ///< position of its first token among all
  std::int64_t count;
};

TokenFiles::TokenFiles(const std::vector<std::string>& files, job::DataFormat format) {
  if (files.empty()) {
    throw RequestError("data.files names no file; give at least one");
  }
  Problems problems;
  for (const std::string& file : files) {
    try {
      parts_.push_back(std::make_unique<Part>(file, format, size_));
      size_ += parts_.back()->count;
    } catch (const RequestError& error) {
      problems.add_all(error.problems());
    }
  }
  problems.raise();
}

TokenFiles::~TokenFiles() = default;

void TokenFiles::read(std::int64_t start, std::int64_t count, std::int64_t* out) const {
  if (start < 0 || count < 0 || count > size_ || start > size_ - count) {
    throw std::out_of_range(fmt::format("{} tokens from {} on, of {}", count, start, size_));
  }
  const auto behind = [](std::int64_t position, const auto& part) { return position < part->first; };
  auto part = std::upper_bound(parts_.begin(), parts_.end(), start, behind) - 1;
  for (; count > 0; ++part) {
    const std::int64_t skipped = start - (*part)->first;
    const std::int64_t taken = std::min(count, (*part)->count - skipped);
    if ((*part)->width == 1) {
      std::copy_n((*part)->as_bytes() + skipped, taken, out);
    } else {
      std::copy_n((*part)->as_words() + skipped, taken, out);
    }
    start += taken;
    count -= taken;
    out += taken;
  }
}

std::int64_t TokenFiles::largest_token() const {
  std::int64_t largest = 0;
  for (const auto& part : parts_) {
    const std::int64_t of_part = part->width == 1
                                     ? *std::max_element(part->as_bytes(), part->as_bytes() + part->count)
                                     : *std::max_element(part->as_words(), part->as_words() + part->count);
    largest = std::max(largest, of_part);
  }
  return largest;
}

}  // namespace ndmesh::train
