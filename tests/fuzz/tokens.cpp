#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fuzz/target.h"
#include "ndmesh/train/data.h"

/// Token files of every format.
void ndmesh::fuzz::one_input(std::string_view bytes) {
  static const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("fuzz_tokens_{}", getpid())).string();
  std::ofstream(path, std::ios::binary) << bytes;
  for (const job::DataFormat format : {job::DataFormat::text, job::DataFormat::u16, job::DataFormat::bin}) {
    try {
      const train::TokenFiles files({path}, format);
      std::vector<std::int64_t> tokens(static_cast<std::size_t>(files.size()));
      files.read(0, files.size(), tokens.data());
    } catch (const RequestError&) {
    }
  }
}
