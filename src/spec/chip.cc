#include "spec/chip.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/error.h"

namespace opentrn::spec {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string_view name_of(Grade grade) {
  switch (grade) {
    case Grade::documented: return "documented";
    case Grade::measured: return "measured";
    case Grade::estimated: return "estimated";
  }
  return "?";
}

std::map<std::string, int> Chip::grade_counts() const {
  std::map<std::string, int> counts;
  for (const Parameter& p : parameters) ++counts[std::string(name_of(p.grade))];
  return counts;
}

namespace {

// The folder of the library (or executable) that contains this code.
fs::path library_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&library_folder), &info) == 0 || !info.dli_fname) return {};
  return fs::path(info.dli_fname).parent_path();
}

fs::path chip_folder() {
  std::error_code ignored;
  if (const char* folder = std::getenv("OPENTRN_CHIPS"); folder && *folder) {
    if (!fs::is_directory(folder, ignored))
      throw UserError(fmt::format("OPENTRN_CHIPS={} is not a folder: set it to a folder of chip files, or unset it", folder));
    return folder;
  }
  fs::path installed = library_folder() / "chips";
  if (fs::is_directory(installed, ignored)) return installed;
#ifdef OPENTRN_SOURCE_CHIPS
  if (fs::is_directory(OPENTRN_SOURCE_CHIPS, ignored)) return OPENTRN_SOURCE_CHIPS;
#endif
  throw UserError(fmt::format("no chip files: neither {} nor the source tree has them; set OPENTRN_CHIPS to their folder",
                              installed.string()));
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

// 128 bits of FNV-1a in two lanes: identifies a file's contents, no defence against an adversary.
std::string hash_of(const std::string& text) {
  uint64_t a = 14695981039346656037ull, b = 0x9e3779b97f4a7c15ull;
  for (unsigned char c : text) {
    a = (a ^ c) * 1099511628211ull;
    b = (b ^ (c + 0x5bull)) * 0x100000001b3ull;
    b ^= b >> 29;
  }
  return fmt::format("{:016x}{:016x}", a, b);
}

// Reads numbers out of one chip file, collects them as parameters and remembers which keys were asked for,
// so that a misspelt or superfluous key is an error.
class Reader {
 public:
  Reader(Chip& chip, const Json& root, std::string file) : chip_(chip), root_(root), file_(std::move(file)) {}

  [[noreturn]] void fail(const std::string& path, const std::string& what) const {
    throw UserError(fmt::format("chip file {}: {}: {}", file_, path, what));
  }

  std::string text(const std::string& key) {
    used_.insert(key);
    auto it = root_.find(key);
    if (it == root_.end()) fail(key, "missing (a string)");
    if (!it->is_string() || it->get<std::string>().empty()) fail(key, "must be a string that is not empty");
    return it->get<std::string>();
  }

  void sources() {
    used_.insert("sources");
    auto it = root_.find("sources");
    if (it == root_.end() || !it->is_object()) fail("sources", "must be an object from short keys to full sources");
    for (auto& [key, value] : it->items()) {
      if (!value.is_string()) fail("sources." + key, "must be a string");
      sources_[key] = value.get<std::string>();
    }
  }

  const Json& section(const std::string& name) {
    used_.insert(name);
    auto it = root_.find(name);
    if (it == root_.end() || !it->is_object()) fail(name, "missing (an object)");
    return *it;
  }

  double number(const std::string& section_name, const std::string& key, double low, double high) {
    const Json& entry = find(section_name, key);
    return number_in(entry, section_name + "." + key, low, high);
  }

  int64_t integer(const std::string& section_name, const std::string& key, int64_t low, int64_t high) {
    double value = number(section_name, key, static_cast<double>(low), static_cast<double>(high));
    if (value != std::floor(value)) fail(section_name + "." + key + ".value", fmt::format("must be a whole number, not {}", value));
    return static_cast<int64_t>(value);
  }

  bool flag(const std::string& section_name, const std::string& key) {
    std::string path = section_name + "." + key;
    const Json& entry = find(section_name, key);
    const Json& value = value_of(entry, path);
    if (!value.is_boolean()) fail(path + ".value", "must be true or false");
    record(entry, path, value.get<bool>() ? 1 : 0);
    return value.get<bool>();
  }

  // A list valued entry; the parameter's number is its length.
  const Json& list(const std::string& section_name, const std::string& key) {
    std::string path = section_name + "." + key;
    const Json& entry = find(section_name, key);
    const Json& value = value_of(entry, path);
    if (!value.is_array() || value.empty()) fail(path + ".value", "must be a list that is not empty");
    record(entry, path, static_cast<double>(value.size()));
    return value;
  }

  double number_in(const Json& entry, const std::string& path, double low, double high) {
    const Json& value = value_of(entry, path);
    if (!value.is_number()) fail(path + ".value", "must be a number");
    double number = value.get<double>();
    if (!std::isfinite(number) || number < low || number > high)
      fail(path + ".value", fmt::format("is {}, must be between {} and {}", number, low, high));
    record(entry, path, number);
    return number;
  }

  void laws(std::map<std::string, Law>& laws) {
    for (auto& [key, entry] : section("laws").items()) {
      std::string path = "laws." + key;
      if (!entry.is_object()) fail(path, "must be an object with startup and slope");
      for (auto& [part, unused] : entry.items())
        if (part != "startup" && part != "slope") fail(path + "." + part, "is not known here; a law has startup and slope");
      for (const char* part : {"startup", "slope"})
        if (!entry.contains(part)) fail(path + "." + part, "missing");
      laws[key] = {number_in(entry["startup"], path + ".startup", 0, 1e6), number_in(entry["slope"], path + ".slope", 0, 1e4)};
    }
  }

  void mark_section_used(const std::string& name) { whole_.insert(name); }

  void check_all_used() const {
    for (auto& [name, value] : root_.items()) {
      if (!used_.count(name)) fail(name, "is not known");
      if (!value.is_object() || whole_.count(name) || name == "laws" || name == "sources") continue;
      for (auto& [key, unused] : value.items())
        if (!used_.count(name + "." + key)) fail(name + "." + key, "is not known");
    }
  }

 private:
  const Json& find(const std::string& section_name, const std::string& key) {
    const Json& in = section(section_name);
    used_.insert(section_name + "." + key);
    auto it = in.find(key);
    if (it == in.end()) fail(section_name + "." + key, "missing");
    return *it;
  }

  const Json& value_of(const Json& entry, const std::string& path) const {
    if (!entry.is_object()) fail(path, "must be an object with value, unit, source and grade");
    for (auto& [key, unused] : entry.items())
      if (key != "value" && key != "unit" && key != "source" && key != "grade" && key != "note")
        fail(path + "." + key, "is not known; a number has value, unit, source, grade and perhaps note");
    if (!entry.contains("value")) fail(path + ".value", "missing");
    return entry["value"];
  }

  std::string string_in(const Json& entry, const std::string& path, const char* key, bool required) const {
    if (!entry.contains(key)) {
      if (required) fail(path + "." + key, "missing");
      return {};
    }
    if (!entry[key].is_string() || entry[key].get<std::string>().empty())
      fail(path + "." + key, "must be a string that is not empty");
    return entry[key].get<std::string>();
  }

  void record(const Json& entry, const std::string& path, double value) {
    Parameter p;
    p.path = path;
    p.value = value;
    p.unit = string_in(entry, path, "unit", true);
    p.note = string_in(entry, path, "note", false);
    std::string grade = string_in(entry, path, "grade", true);
    if (grade == "documented") p.grade = Grade::documented;
    else if (grade == "measured") p.grade = Grade::measured;
    else if (grade == "estimated") p.grade = Grade::estimated;
    else fail(path + ".grade", fmt::format("is '{}', must be documented, measured or estimated", grade));
    std::stringstream keys(string_in(entry, path, "source", true));
    for (std::string key; std::getline(keys, key, ',');) {
      key.erase(0, key.find_first_not_of(' '));
      auto it = sources_.find(key);
      if (it == sources_.end()) fail(path + ".source", fmt::format("'{}' is not one of the keys of `sources`", key));
      p.source += (p.source.empty() ? "" : "; ") + it->second;
    }
    chip_.parameters.push_back(std::move(p));
  }

  Chip& chip_;
  const Json& root_;
  std::string file_;
  std::map<std::string, std::string> sources_;
  std::set<std::string> used_, whole_;
};

void read_memory(Chip& c, Reader& r) {
  c.partitions = static_cast<int>(r.integer("memory", "partitions", 1, 128));
  c.sbuf_bytes_per_partition = r.integer("memory", "sbuf_bytes_per_partition", 1, 1 << 30);
  c.psum_bytes_per_partition = r.integer("memory", "psum_bytes_per_partition", 1, 1 << 30);
  c.psum_bank_bytes = r.integer("memory", "psum_bank_bytes", 1, 1 << 30);
  c.psum_banks = static_cast<int>(r.integer("memory", "psum_banks", 1, 1024));
  if (c.psum_bank_bytes * c.psum_banks != c.psum_bytes_per_partition)
    r.fail("memory.psum_banks", "banks times bytes per bank must be memory.psum_bytes_per_partition");
  c.hbm_bytes_per_core = r.integer("memory", "hbm_bytes_per_core", 1 << 20, int64_t{1} << 50);
  c.hbm_gb_s_per_core = r.number("memory", "hbm_gb_s_per_core", 1, 1e6);
  c.strided_access_bytes = r.number("memory", "strided_access_bytes", 0, 1e6);
  c.strided_access_factor = r.number("memory", "strided_access_factor", 1, 100);
}

void read_engines(Chip& c, Reader& r) {
  const char* names[] = {"tensor", "vector", "scalar", "gpsimd", "sync"};
  for (int e = 0; e < 5; ++e) {
    c.engines[e].ghz = r.number(names[e], "ghz", 0.01, 100);
    c.engines[e].min_issue_cycles = r.number(names[e], "min_issue_cycles", 0, 1e5);
  }
  c.tensor_rows = static_cast<int>(r.integer("tensor", "rows", 1, 4096));
  c.tensor_columns = static_cast<int>(r.integer("tensor", "columns", 1, 4096));
  c.moving_free_max = static_cast<int>(r.integer("tensor", "moving_free_max", 1, 1 << 20));
  c.fp32_passes = r.number("tensor", "fp32_passes", 1, 64);
  c.matmul_latency_ns = r.number("tensor", "matmul_latency_ns", 0, 1e6);
  c.load_stationary_columns_per_cycle = r.number("tensor", "load_stationary_columns_per_cycle", 0.01, 1000);
  c.load_stationary_startup_ns = r.number("tensor", "load_stationary_startup_ns", 0, 1e6);
  c.throttle_rate = r.number("tensor", "throttle_rate", 0.01, 1);
  c.throttle_ramp_ns = r.number("tensor", "throttle_ramp_ns", 0, 1e7);
  c.throttle_utilisation = r.number("tensor", "throttle_utilisation", 0, 1);
  c.vector_perf_modes = r.flag("vector", "perf_modes");
  c.vector_gpsimd_share_port = r.flag("vector", "gpsimd_share_port");
  c.fp8_perf_modes = r.flag("vector", "fp8_perf_modes");
  c.act_table_load_ns = r.number("scalar", "act_table_load_ns", 0, 1e6);
  std::set<std::string> seen;
  for (const Json& set : r.list("scalar", "act_table_sets")) {
    if (!set.is_array()) r.fail("scalar.act_table_sets.value", "must be a list of lists of function names");
    c.act_table_sets.emplace_back();
    for (const Json& function : set) {
      if (!function.is_string()) r.fail("scalar.act_table_sets.value", "must be a list of lists of function names");
      std::string name = function.get<std::string>();
      if (!seen.insert(name).second) r.fail("scalar.act_table_sets.value", fmt::format("'{}' is in two sets", name));
      c.act_table_sets.back().push_back(name);
    }
  }
  c.gpsimd_lanes_32 = static_cast<int>(r.integer("gpsimd", "lanes_32", 1, 1 << 20));
  c.gpsimd_cores = static_cast<int>(r.integer("gpsimd", "cores", 1, 128));
  c.gpsimd_cycles_per_vector_op = r.number("gpsimd", "cycles_per_vector_op", 0.001, 1e4);
  c.gpsimd_special_op_factor = r.number("gpsimd", "special_op_factor", 1, 1e4);
  c.event_semaphore_ns = r.number("sync", "event_semaphore_ns", 0, 1e6);
  c.semaphore_latency_ns = r.number("sync", "semaphore_latency_ns", 0, 1e6);
  c.barrier_ns = r.number("sync", "barrier_ns", 0, 1e6);
  c.core_barrier_ns = r.number("sync", "core_barrier_ns", 0, 1e6);
}

void read_dma(Chip& c, Reader& r) {
  c.dma_engines = static_cast<int>(r.integer("dma", "engines", 1, 64));
  c.dma_bytes_per_ns_per_engine = r.number("dma", "bytes_per_ns_per_engine", 0.01, 1e5);
  c.dma_peak_bytes_per_ns_per_engine = r.number("dma", "peak_bytes_per_ns_per_engine", 0.01, 1e5);
  c.dma_descriptor_ns = r.number("dma", "descriptor_ns", 0, 1e6);
  c.dma_transfer_overhead_ns = r.number("dma", "transfer_overhead_ns", 0, 1e6);
  c.dma_start_ns = r.number("dma", "start_ns", 0, 1e6);
  c.dma_issue_ns = r.number("dma", "issue_ns", 0, 1e6);
  c.dma_complete_ns = r.number("dma", "complete_ns", 0, 1e6);
  c.dma_start_dynamic_ns = r.number("dma", "start_dynamic_ns", 0, 1e6);
  c.dma_issue_dynamic_ns = r.number("dma", "issue_dynamic_ns", 0, 1e6);
  c.dma_dynamic_batch = static_cast<int>(r.integer("dma", "dynamic_batch", 1, 1 << 20));
  c.dma_gather_descriptor_ns = r.number("dma", "gather_descriptor_ns", 0, 1e6);
  c.dma_gather_payload_factor = r.number("dma", "gather_payload_factor", 1, 100);
  c.dma_scatter_descriptor_ns = r.number("dma", "scatter_descriptor_ns", 0, 1e6);
  c.dma_scatter_payload_factor = r.number("dma", "scatter_payload_factor", 1, 100);
  c.dma_transpose_fraction = r.number("dma", "transpose_fraction", 0.001, 1);
  c.dma_transpose_sbuf_fraction = r.number("dma", "transpose_sbuf_fraction", 0.001, 1);
  c.dma_accumulate_fraction = r.number("dma", "accumulate_fraction", 0.001, 1);
  c.dma_max_descriptor_bytes = r.integer("dma", "max_descriptor_bytes", 512, 1 << 30);
  c.dma_split_bytes = r.integer("dma", "split_bytes", 1, 1 << 30);
  c.hardware_dge = r.flag("dma", "hardware_dge");
}

void read_host(Chip& c, Reader& r) {
  c.dispatch_eager_us = r.number("host", "dispatch_eager_us", 0, 1e6);
  c.dispatch_eager_min_us = r.number("host", "dispatch_eager_min_us", 0, 1e6);
  c.dispatch_eager_max_us = r.number("host", "dispatch_eager_max_us", 0, 1e6);
  if (!(c.dispatch_eager_min_us <= c.dispatch_eager_us && c.dispatch_eager_us <= c.dispatch_eager_max_us))
    r.fail("host.dispatch_eager_us.value", "must lie between dispatch_eager_min_us and dispatch_eager_max_us");
  c.launch_us = r.number("host", "launch_us", 0, 1e6);
  c.launch_compiled_us = r.number("host", "launch_compiled_us", 0, 1e6);
  c.host_to_device_gb_s = r.number("host", "host_to_device_gb_s", 0.001, 1e5);
  c.host_transfer_latency_us = r.number("host", "host_transfer_latency_us", 0, 1e6);
}

std::unique_ptr<Chip> load(const fs::path& path, const std::string& name) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream contents;
  contents << file.rdbuf();
  if (!file) throw UserError(fmt::format("chip file {} cannot be read", path.string()));
  Json root;
  try {
    root = Json::parse(contents.str());
  } catch (const Json::exception& e) {
    throw UserError(fmt::format("chip file {}: not valid JSON: {}", path.string(), e.what()));
  }
  if (!root.is_object()) throw UserError(fmt::format("chip file {}: must hold one JSON object", path.string()));

  auto chip = std::make_unique<Chip>();
  Chip& c = *chip;
  Reader r(c, root, path.string());
  c.name = r.text("name");
  if (c.name != name) r.fail("name", fmt::format("is '{}', but the file is called {}.json", c.name, name));
  c.title = r.text("title");
  c.hash = hash_of(contents.str());
  r.sources();

  c.cores_per_chip = static_cast<int>(r.integer("core", "cores_per_chip", 1, 1024));
  for (const Json& lnc : r.list("core", "lnc_allowed")) {
    if (!lnc.is_number_integer() || (lnc.get<int>() != 1 && lnc.get<int>() != 2))
      r.fail("core.lnc_allowed.value", "may hold 1 and 2 only");
    c.lnc_allowed.push_back(lnc.get<int>());
  }
  c.lnc_default = static_cast<int>(r.integer("core", "lnc_default", 1, 2));
  if (std::find(c.lnc_allowed.begin(), c.lnc_allowed.end(), c.lnc_default) == c.lnc_allowed.end())
    r.fail("core.lnc_default.value", "must be one of core.lnc_allowed");
  c.semaphores = static_cast<int>(r.integer("core", "semaphores", 1, 32767));
  c.engine_registers = static_cast<int>(r.integer("core", "engine_registers", 1, 32767));
  read_memory(c, r);
  read_engines(c, r);
  read_dma(c, r);
  read_host(c, r);
  for (auto& [key, entry] : r.section("peak_tflops").items())
    c.peak_tflops[key] = r.number_in(entry, "peak_tflops." + key, 0.001, 1e6);
  r.mark_section_used("peak_tflops");
  for (const char* dtype : {"bf16", "fp32"})
    if (!c.peak_tflops.count(dtype)) r.fail(std::string("peak_tflops.") + dtype, "missing");
  r.laws(c.laws);
  r.check_all_used();
  return chip;
}

}  // namespace

std::vector<std::string> chip_names() { return names_in(chip_folder()); }

const Chip& chip(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Chip>> loaded;  // by path: OPENTRN_CHIPS may change between calls
  fs::path folder = chip_folder();
  fs::path path = folder / (name + ".json");
  std::error_code ignored;
  if (name.empty() || name.find('/') != std::string::npos || !fs::is_regular_file(path, ignored)) {
    std::vector<std::string> names = names_in(folder);
    throw UserError(fmt::format("unknown chip '{}': known are {} (files in {})", name, fmt::join(names, ", "), folder.string()));
  }
  std::lock_guard lock(mutex);
  std::unique_ptr<Chip>& slot = loaded[path.string()];
  if (!slot) slot = load(path, name);
  return *slot;
}

}  // namespace opentrn::spec
