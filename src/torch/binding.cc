// The extension module opentrn._torch: what the Python side of the device asks of bridge and runtime.
#include <ATen/ATen.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "runtime/device.h"
#include "runtime/kernel.h"
#include "runtime/origin.h"
#include "runtime/settings.h"
#include "torch/boxed.h"
#include "torch/device.h"
#include "torch/fallback.h"
#include "torch/generator.h"
#include "torch/host_allocator.h"
#include "torch/origin.h"
#include "torch/process_group.h"

namespace py = pybind11;

namespace opentrn::bridge {
namespace {

using GilFree = py::call_guard<py::gil_scoped_release>;

py::dict counter(const runtime::Counter& c) {
  py::dict d;
  d["current"] = c.current;
  d["peak"] = c.peak;
  d["allocated"] = c.allocated;
  d["freed"] = c.freed;
  return d;
}

py::dict memory_stats(int index) {
  runtime::MemoryStats s = device(index).memory().stats();
  py::dict d;
  d["allocated_bytes"] = counter(s.allocated_bytes);
  d["reserved_bytes"] = counter(s.reserved_bytes);
  d["active_bytes"] = counter(s.active_bytes);
  d["requested_bytes"] = counter(s.requested_bytes);
  d["allocation"] = counter(s.allocation);
  d["segment"] = counter(s.segment);
  d["active"] = counter(s.active);
  d["num_alloc_retries"] = s.num_alloc_retries;
  d["num_ooms"] = s.num_ooms;
  d["capacity_bytes"] = s.capacity_bytes;
  return d;
}

py::dict properties(int index) {
  runtime::Device& d = device(index);
  py::dict p;
  p["name"] = runtime::settings().chip;
  p["total_memory"] = d.memory().capacity();
  p["lnc"] = d.lnc();
  p["physical_cores"] = d.lnc();
  return p;
}

py::dict totals(int index) {
  runtime::Totals t = device(index).totals();
  py::dict d;
  d["launches"] = t.launches;
  d["device_ps"] = t.device_ps;
  py::dict busy;
  const char* engines[] = {"tensor", "vector", "scalar", "gpsimd", "sync"};
  for (int i = 0; i < 5; ++i) busy[engines[i]] = t.busy_ps[i];
  d["busy_ps"] = busy;
  d["dma_busy_ps"] = t.dma_busy_ps;
  d["hbm_bytes"] = t.hbm_bytes;
  d["model_flops"] = t.model_flops;
  d["hardware_flops"] = t.hardware_flops;
  d["host_transfer_bytes"] = t.host_transfer_bytes;
  d["host_transfer_ps"] = t.host_transfer_ps;
  d["dispatches"] = t.dispatches;
  d["dispatch_ps"] = t.dispatch_ps;
  d["host_ps"] = t.host_ps;
  d["core_ps"] = t.core_ps;
  return d;
}

py::list launches() {
  py::list all;
  for (const runtime::LaunchRecord& r : runtime::launch_records()) {
    py::dict d;
    d["start_ps"] = r.start_ps;
    d["end_ps"] = r.end_ps;
    d["host_ps"] = r.host_ps;
    d["kernel"] = r.kernel;
    d["origin"] = r.origin;
    d["device"] = r.device;
    d["stream"] = r.stream;
    d["step"] = r.step;
    d["kind"] = r.kind;
    d["bytes"] = r.bytes;
    all.append(d);
  }
  return all;
}

py::object kernel(int id) {
  auto k = runtime::kernel_by_id(id);
  if (!k) return py::none();
  py::dict d;
  d["id"] = k->id;
  d["key"] = k->key;
  d["name"] = k->name;
  d["total_ps"] = k->time.total_ps;
  d["scratch_bytes"] = k->scratch_bytes;
  d["dma_busy_ps"] = k->dma_busy_ps;
  d["hbm_bytes"] = k->hbm_bytes;
  d["model_flops"] = k->model_flops;
  d["hardware_flops"] = k->hardware_flops;
  d["compile_ms"] = k->compile_ms;
  d["plan_ms"] = k->plan_ms;
  d["from_disk"] = k->source == runtime::Kernel::Source::disk;
  return d;
}

py::dict cache_stats() {
  runtime::CacheStats s = runtime::cache_stats();
  py::dict d;
  d["compiled"] = s.compiled;
  d["memory_hits"] = s.memory_hits;
  d["disk_hits"] = s.disk_hits;
  d["disk_writes"] = s.disk_writes;
  d["disk_rejected"] = s.disk_rejected;
  d["evicted"] = s.evicted;
  d["compile_ms"] = s.compile_ms;
  d["plans"] = s.plans;
  d["plans_checked"] = s.plans_checked;
  d["plans_unequal"] = s.plans_unequal;
  d["plan_ms"] = s.plan_ms;
  return d;
}

py::list fallback_list() {
  py::list all;
  for (const Fallback& f : fallbacks()) {
    py::dict d;
    d["op"] = f.op;
    d["reason"] = f.reason;
    d["count"] = f.count;
    py::list lines;
    for (auto [id, count] : f.origins) lines.append(py::make_tuple(describe_origin(id), count));
    d["lines"] = lines;
    all.append(d);
  }
  return all;
}

py::object origin_of(int32_t id) {
  Origin o = origin(id);
  if (o.file.empty()) return py::none();
  py::dict d;
  d["file"] = o.file;
  d["line"] = o.line;
  d["function"] = o.function;
  d["backward"] = o.backward;
  return d;
}

PYBIND11_MODULE(_torch, m) {
  m.attr("torch_version") = OPENTRN_TORCH_VERSION;

  runtime::set_origin_describer([](int32_t id) { return id < 0 ? std::string() : describe_origin(id); });
  register_operators();

  // ---- devices and streams
  m.def("device_count", [] { return device_count(); });
  m.def("settings", [] {
    const runtime::Settings& s = runtime::settings();
    py::dict d;
    d["mode"] = s.mode == runtime::Mode::predict ? "predict" : "simulate";
    d["chip"] = s.chip;
    d["lnc"] = s.lnc;
    d["devices"] = s.devices;
    d["threads"] = s.threads;
    d["host_plan"] = runtime::name_of(s.host_plan);
    d["launch_blocking"] = s.launch_blocking;
    d["cache_dir"] = s.cache_dir;
    d["disk_cache"] = s.disk_cache;
    return d;
  });
  m.def("current_device", [] { return current_device(); });
  m.def("set_device", [](int index) { set_current_device(index); });
  m.def("exchange_device", [](int index) {
    int previous = current_device();
    if (index >= 0) set_current_device(index);
    return previous;
  });
  m.def("initialized", [] { return initialized(); });
  m.def(
      "init", [](int index) { device(index); }, GilFree());
  m.def("in_forked_child", [] { return runtime::in_forked_child(); });
  m.def("properties", &properties);
  m.def(
      "synchronize", [](int index) { awaited_device(index).synchronize(); }, GilFree());
  m.def("current_stream", [](int index) { return current_stream(index); });
  m.def("exchange_stream", [](int index, int64_t stream) { return exchange_stream(index, stream); });

  // ---- memory
  m.def("memory_stats", &memory_stats);
  m.def("reset_peak_memory_stats", [](int index) { device(index).memory().reset_peak(); });
  m.def("reset_accumulated_memory_stats", [](int index) { device(index).memory().reset_accumulated(); });
  m.def(
      "empty_cache",
      [] {
        for (int i = 0; i < device_count(); ++i) {
          if (runtime::Device::exists(i)) device(i).memory().empty_cache();
        }
      },
      GilFree());
  m.def("memory_holders", [](int index, size_t most) {
    py::list all;
    for (const runtime::Holder& h : device(index).memory().holders(most))
      all.append(py::make_tuple(h.address, h.bytes, h.origin));
    return all;
  });
  m.def("is_pinned", [](uint64_t address) { return is_pinned(reinterpret_cast<const void*>(address)); });

  // ---- random numbers
  m.def("default_generator", [](int index) { return default_generator(static_cast<c10::DeviceIndex>(index)); });

  // ---- the clock and the profile
  m.def("totals", &totals);
  m.def("reset_totals", [](int index) { device(index).reset_totals(); });
  m.def("host_ps", [](int index) { return device(index).host_ps(); });
  m.def("advance_host_ps", [](int index, int64_t ps) { device(index).advance_host_ps(ps); });
  m.def(
      "set_recording",
      [](const std::string& what, int steps) {
        using runtime::Recording;
        TORCH_CHECK_VALUE(what == "off" || what == "last" || what == "all", "recording must be off, last or all, got ",
                          what);
        runtime::set_recording(what == "off"   ? Recording::off
                               : what == "all" ? Recording::all
                                               : Recording::last_steps,
                               steps);
      },
      py::arg("what"), py::arg("steps") = 3);
  m.def(
      "mark_step", [] { runtime::mark_step(); }, GilFree());
  m.def("launch_records", &launches);

  // ---- kernels and their cache
  m.def("kernel", &kernel);
  m.def("kernel_count", [] { return runtime::kernel_count(); });
  m.def("cache_stats", &cache_stats);
  m.def(
      "clear_cache",
      [](bool disk) {
        clear_prepared();
        runtime::clear_cache(disk);
      },
      py::arg("disk") = false, GilFree());
  m.def(
      "flush_cache", [] { runtime::flush_cache(); }, GilFree());

  // ---- operators
  m.def("registered_operators", &registered_operators);
  m.def("registration_problems", &registration_problems);
  m.def("operator_uses", [] {
    py::list all;
    for (const OperatorUse& use : operator_uses()) all.append(py::make_tuple(use.name, use.calls, use.prepared));
    return all;
  });
  m.def("clear_operator_uses", &clear_operator_uses);
  m.def("fallbacks", &fallback_list);
  m.def("clear_fallbacks", &clear_fallbacks);
  m.def("fallback_policy", [] {
    switch (fallback_policy()) {
      case FallbackPolicy::warn: return "warn";
      case FallbackPolicy::quiet: return "quiet";
      case FallbackPolicy::error: return "error";
    }
    return "";
  });
  m.def("set_fallback_policy", [](const std::string& policy) {
    TORCH_CHECK_VALUE(policy == "warn" || policy == "quiet" || policy == "error",
                      "the fallback policy must be warn, quiet or error, got ", policy);
    set_fallback_policy(policy == "warn"    ? FallbackPolicy::warn
                        : policy == "quiet" ? FallbackPolicy::quiet
                                            : FallbackPolicy::error);
  });

  // ---- origins
  m.def("add_library_folder", &add_library_folder);
  m.def("capture_origin", [] { return capture_origin(); });
  m.def("origin", &origin_of);
  m.def("describe_origin", &describe_origin);
  m.def("origin_count", &origin_count);

  // ---- distributed
  m.def("make_process_group", &make_process_group);
}

}  // namespace
}  // namespace opentrn::bridge
