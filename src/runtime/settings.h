// Process-wide settings, read once from the environment at first use.
#pragma once

#include <cstdint>
#include <string>

namespace opentrn::runtime {

enum class Mode : uint8_t { simulate, predict };
// How programs are executed: by their host plans, by the reference interpreter, or by both, comparing.
enum class HostPlan : uint8_t { on, off, check };
const char* name_of(HostPlan host_plan);

inline constexpr int kMaxDevices = 128;  // logical cores in one process

struct Settings {
  Mode mode = Mode::simulate;  // OPENTRN_MODE=simulate|predict
  std::string chip = "trn2";   // OPENTRN_CHIP, else NEURON_PLATFORM_TARGET_OVERRIDE
  int lnc = 2;                 // NEURON_LOGICAL_NC_CONFIG, NEURON_RT_VIRTUAL_CORE_SIZE; chip default
  int devices = 4;             // NEURON_RT_NUM_CORES, NEURON_RT_VISIBLE_CORES; default: logical cores of one chip
  int threads = 1;             // OPENTRN_NUM_THREADS; default: the host's cores, until `set_threads` is called
  bool threads_fixed = false;  // OPENTRN_NUM_THREADS is set: `set_threads` changes nothing
  HostPlan host_plan = HostPlan::on;  // OPENTRN_HOST_PLAN=on|off|check
  bool launch_blocking = false;       // NEURON_LAUNCH_BLOCKING=1: every launch waits for its execution
  std::string cache_dir;   // OPENTRN_CACHE_DIR, TORCH_NEURONX_NEFF_CACHE_DIR; default $XDG_CACHE_HOME/opentrn,
                           // else ~/.cache/opentrn; absolute
  bool disk_cache = true;  // OPENTRN_CACHE=0, TORCH_NEURONX_NEFF_DISABLE_CACHE=1 turn it off
  int64_t cache_max_bytes = 1ll << 30;  // NEURON_COMPILATION_CACHE_MAX_SIZE_MB
  int64_t memory_programs = 4096;       // OPENTRN_MAX_PROGRAMS: programs kept in memory
};

// Throws UserError naming the variable, its value and what is allowed.
const Settings& settings();
// Parses the environment anew (tests). Not while a device is in use.
void reload_settings();

}  // namespace opentrn::runtime
