#include "ndmesh/measure/record.h"

#include <fmt/format.h>
#include <torch/csrc/api/include/torch/version.h>

#include <algorithm>
#include <thread>

#include "ndmesh/base/error.h"
#include "ndmesh/base/units.h"

namespace ndmesh::measure {
namespace {

using nlohmann::json;

json to_json(const Spread& spread) {
  return {{"min", spread.min}, {"median", spread.median}, {"max", spread.max}, {"max_rank", spread.max_rank}};
}

/// Of the categories that some rank used.
json to_json(const std::array<Spread, memory_category_count>& peaks) {
  json out = json::object();
  for (std::size_t i = 0; i < memory_category_count; ++i) {
    if (peaks[i].max > 0) {
      out[std::string(memory_category_names[i])] = to_json(peaks[i]);
    }
  }
  return out;
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      return line.substr(line.find(':') + 2);
    }
  }
  return "unknown";
}

json mesh_json(const mesh::MeshSizes& sizes) {
  json out;
  for (std::size_t i = 0; i < mesh::axis_count; ++i) {
    out[std::string(mesh::axis_names[i])] = sizes.size(static_cast<mesh::Axis>(i));
  }
  return out;
}

}  // namespace

Spread spread_of(const std::vector<double>& values) {
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  const double median = sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  const auto largest = std::max_element(values.begin(), values.end());
  return {sorted.front(), median, sorted.back(), largest - values.begin()};
}

std::optional<double> StepReport::mfu() const {
  if (!peak_flops) {
    return std::nullopt;
  }
  return flops_per_token * tokens_per_second() / *peak_flops;
}

json to_json(const MemoryBytes& bytes) {
  json out;
  for (std::size_t i = 0; i < memory_category_count; ++i) {
    out[std::string(memory_category_names[i])] = bytes.by_category[i];
  }
  return out;
}

json to_json(const StepReport& report) {
  json time;
  for (std::size_t i = 0; i < part_count; ++i) {
    time[std::string(part_names[i])] = report.times.parts[i];
  }
  json exposed = json::object();
  for (const auto& [name, seconds] : report.times.exposed) {
    exposed[name] = {{"skew", seconds.skew}, {"transfer", seconds.transfer}};
  }
  json bubble;  // null without a pipeline
  if (report.bubble) {
    bubble = {{"measured", report.bubble->measured}, {"predicted", report.bubble->predicted}};
  }
  const auto mfu = report.mfu();
  return {
      {"kind", "step"},
      {"step", report.step},
      {"loss", report.loss},
      {"grad_norm", report.grad_norm},
      {"lr", report.lr},
      {"tokens", report.tokens},
      {"seconds", report.seconds},
      {"tokens_per_second", report.tokens_per_second()},
      {"mfu", mfu ? json(*mfu) : json(nullptr)},
      {"peak_rss_bytes", report.peak_rss_bytes},
      {"memory", to_json(report.memory)},
      {"memory_at_peak", to_json(report.memory_at_peak)},
      {"host",
       {{"peak", report.host.peak}, {"to_host", report.host.to_host}, {"to_device", report.host.to_device}}},
      {"time", std::move(time)},
      {"exposed", std::move(exposed)},
      {"bubble", std::move(bubble)},
      {"ranks",
       {{"memory_total", to_json(report.memory_total)},
        {"memory", to_json(report.memory_peaks)},
        {"exposed_seconds", to_json(report.exposed)}}}};
}

json identity(const job::Job& job, const model::ModelSpec& model, const RankMemory& predicted) {
  return {{"kind", "identity"},
          {"name", job.name},
          {"program", {{"name", "ndmesh"}, {"version", NDMESH_VERSION}, {"compiler", "g++ " __VERSION__}}},
          {"libtorch", TORCH_VERSION},
          {"model",
           {{"family", model.family}, {"parameters", model.parameter_count()}, {"layers", model.layers}}},
          {"mesh", mesh_json(job.mesh)},
          {"world", mesh::Mesh(job.mesh, job.mesh_order).world()},
          {"transport", job.run.transport},
          {"device",
           {{"kind", job.run.device},
            {"name", processor_name()},
            {"cores", std::thread::hardware_concurrency()}}},
          {"threads_per_rank", job::threads_per_rank(job)},
          {"dtype", std::string(name_of(job.dtype))},
          {"batch",
           {{"global", job.batch.global},
            {"micro", job.batch.micro},
            {"seq_len", job.batch.seq_len},
            {"micro_batches", job::accumulation(job)}}},
          {"seed", job.run.seed},
          {"mfu_formula",
           "tokens_per_second x (6 x matrix parameters + 6 x layers x heads x head_dim x seq_len) / peak; "
           "null where the peak of the device is unknown"},
          {"predicted_memory", to_json(predicted.device)},
          {"predicted_host_memory", predicted.host}};
}

std::string step_line(const StepReport& report, std::int64_t steps) {
  const double exposed = 100.0 * report.times[Part::exposed] / std::max(report.times.total, 1e-12);
  return fmt::format(
      "step {:>6}/{:<6} loss {:8.4f}  norm {:8.3f}  lr {:.2e}  {:>9.0f} tok/s  {:>8.1f} ms  exposed {:4.1f} "
      "%  "
      "memory {:>10}",
      report.step, steps, report.loss, report.grad_norm, report.lr, report.tokens_per_second(),
      1e3 * report.seconds, exposed, binary_bytes(static_cast<std::int64_t>(report.memory_total.max)));
}

std::string memory_table(const RankMemory& predicted, const RankMemory& counted) {
  std::string text = fmt::format("{:<16}{:>14}{:>14}\n", "bytes by rank", "predicted", "counted");
  const auto add = [&](std::string_view name, std::int64_t expected, std::int64_t seen) {
    if (expected != 0 || seen != 0) {
      text += fmt::format("{:<16}{:>14}{:>14}\n", name, binary_bytes(expected), binary_bytes(seen));
    }
  };
  for (std::size_t i = 0; i < memory_category_count; ++i) {
    add(memory_category_names[i], predicted.device.by_category[i], counted.device.by_category[i]);
  }
  add("host memory", predicted.host, counted.host);
  return text;
}

Record::Record(const std::filesystem::path& file) : file_(file), out_(file, std::ios::trunc) {
  if (!out_) {
    throw RunError("cannot write " + file.string());
  }
}

void Record::write(const json& line) {
  out_ << line.dump() << '\n' << std::flush;
  if (!out_) {
    throw RunError("cannot write " + file_.string() + ": is the disk full?");
  }
}

}  // namespace ndmesh::measure
