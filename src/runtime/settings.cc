#include "runtime/settings.h"

#include <pwd.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "spec/chip.h"

namespace opentrn::runtime {
namespace {

struct Variable {
  const char* name = nullptr;  // nullptr: not set
  std::string value;
  explicit operator bool() const { return name != nullptr; }
};

// The first of `names` that is set and not empty.
Variable find(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value && *value) return {name, value};
  }
  return {};
}

[[noreturn]] void reject(const Variable& variable, const std::string& allowed) {
  throw UserError(fmt::format("{}={}: {}", variable.name, variable.value, allowed));
}

bool parse_int(std::string_view text, int64_t& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

int64_t integer(const Variable& variable, int64_t least, int64_t most) {
  int64_t value = 0;
  if (!parse_int(variable.value, value) || value < least || value > most)
    reject(variable, fmt::format("expected an integer from {} to {}", least, most));
  return value;
}

bool boolean(const Variable& variable) {
  std::string text = variable.value;
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (text == "1" || text == "true" || text == "yes" || text == "on") return true;
  if (text == "0" || text == "false" || text == "no" || text == "off") return false;
  reject(variable, "expected 0 or 1");
}

// Number of cores named by "0-3", "5" or "0,2,4-7".
int count_cores(const Variable& variable) {
  const std::string allowed = "expected core numbers as in 0-3 or 0,2,5";
  std::set<int64_t> cores;
  std::string_view rest = variable.value;
  while (true) {
    size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    size_t dash = item.find('-');
    int64_t first = 0, last = 0;
    if (!parse_int(item.substr(0, dash), first)) reject(variable, allowed);
    last = first;
    if (dash != std::string_view::npos && !parse_int(item.substr(dash + 1), last)) reject(variable, allowed);
    if (first < 0 || last < first || last >= 4096) reject(variable, allowed);
    for (int64_t core = first; core <= last; ++core) cores.insert(core);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (static_cast<int>(cores.size()) > kMaxDevices)
    reject(variable, fmt::format("at most {} logical cores are supported in one process", kMaxDevices));
  return static_cast<int>(cores.size());
}

std::string default_cache_dir() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return std::string(xdg) + "/opentrn";
  std::string home;
  if (const char* value = std::getenv("HOME"); value && *value) {
    home = value;
  } else {
    passwd entry{}, *found = nullptr;
    char buffer[4096];
    if (getpwuid_r(getuid(), &entry, buffer, sizeof buffer, &found) == 0 && found && found->pw_dir)
      home = found->pw_dir;
  }
  return home.empty() ? std::string() : home + "/.cache/opentrn";
}

Settings parse() {
  Settings s;
  if (Variable v = find({"OPENTRN_MODE"})) {
    if (v.value == "simulate")
      s.mode = Mode::simulate;
    else if (v.value == "predict")
      s.mode = Mode::predict;
    else
      reject(v, "expected simulate (values and time) or predict (time only)");
  }
  if (Variable v = find({"OPENTRN_CHIP", "NEURON_PLATFORM_TARGET_OVERRIDE"})) {
    std::vector<std::string> names = spec::chip_names();
    if (std::find(names.begin(), names.end(), v.value) == names.end())
      reject(v, fmt::format("unknown chip; known: {}", fmt::join(names, ", ")));
    s.chip = v.value;
  }
  const spec::Chip& chip = spec::chip(s.chip);

  s.lnc = chip.lnc_default;
  if (Variable v = find({"NEURON_LOGICAL_NC_CONFIG", "NEURON_RT_VIRTUAL_CORE_SIZE"})) {
    int64_t lnc = 0;
    bool known = parse_int(v.value, lnc) &&
                 std::find(chip.lnc_allowed.begin(), chip.lnc_allowed.end(), lnc) != chip.lnc_allowed.end();
    if (!known)
      reject(v, fmt::format("{} groups {} physical cores into a logical one", s.chip,
                            fmt::join(chip.lnc_allowed, " or ")));
    s.lnc = static_cast<int>(lnc);
  }

  s.devices = std::max(1, chip.cores_per_chip / s.lnc);
  if (Variable v = find({"NEURON_RT_VISIBLE_CORES"}))
    s.devices = count_cores(v);
  else if (Variable n = find({"NEURON_RT_NUM_CORES"}))
    s.devices = static_cast<int>(integer(n, 1, kMaxDevices));

  s.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (Variable v = find({"OPENTRN_NUM_THREADS"})) {
    int threads = static_cast<int>(integer(v, 0, 1024));
    s.threads_fixed = threads > 0;
    if (s.threads_fixed) s.threads = threads;
  }
  if (Variable v = find({"OPENTRN_HOST_PLAN"})) {
    if (v.value == "on")
      s.host_plan = HostPlan::on;
    else if (v.value == "off")
      s.host_plan = HostPlan::off;
    else if (v.value == "check")
      s.host_plan = HostPlan::check;
    else
      reject(v, "expected on (host plans), off (the reference interpreter) or check (both, compared)");
  }
  if (Variable v = find({"NEURON_LAUNCH_BLOCKING"})) s.launch_blocking = boolean(v);

  if (Variable v = find({"OPENTRN_CACHE_DIR", "TORCH_NEURONX_NEFF_CACHE_DIR"}))
    s.cache_dir = v.value;
  else
    s.cache_dir = default_cache_dir();
  if (!s.cache_dir.empty()) {
    // Absolute, so that a script may change its working directory.
    std::error_code error;
    std::filesystem::path path = std::filesystem::absolute(s.cache_dir, error);
    if (!error) s.cache_dir = path.string();
  }
  if (Variable v = find({"OPENTRN_CACHE"})) s.disk_cache = boolean(v);
  if (Variable v = find({"TORCH_NEURONX_NEFF_DISABLE_CACHE", "TORCH_NEURONX_DISABLE_NEFF_CACHE"}); v && boolean(v))
    s.disk_cache = false;
  if (s.cache_dir.empty()) s.disk_cache = false;
  if (Variable v = find({"NEURON_COMPILATION_CACHE_MAX_SIZE_MB"})) s.cache_max_bytes = integer(v, 1, 1 << 24) << 20;
  if (Variable v = find({"OPENTRN_MAX_PROGRAMS"})) s.memory_programs = integer(v, 1, 1 << 24);
  return s;
}

// Settings are replaced, never freed: references handed out stay valid.
struct Current {
  std::mutex mutex;
  std::vector<std::unique_ptr<const Settings>> all;
  std::atomic<const Settings*> settings{nullptr};

  const Settings& replace() {  // with `mutex` held
    all.push_back(std::make_unique<const Settings>(parse()));
    settings.store(all.back().get(), std::memory_order_release);
    return *all.back();
  }
};

Current& current() {
  static Current& value = *new Current;
  return value;
}

}  // namespace

const char* name_of(HostPlan host_plan) {
  switch (host_plan) {
    case HostPlan::on: return "on";
    case HostPlan::off: return "off";
    case HostPlan::check: return "check";
  }
  return "";
}

const Settings& settings() {
  Current& c = current();
  if (const Settings* s = c.settings.load(std::memory_order_acquire)) return *s;
  std::lock_guard lock(c.mutex);
  if (const Settings* s = c.settings.load(std::memory_order_acquire)) return *s;
  return c.replace();
}

void reload_settings() {
  Current& c = current();
  std::lock_guard lock(c.mutex);
  c.replace();
}

}  // namespace opentrn::runtime
