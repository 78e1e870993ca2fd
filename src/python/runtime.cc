#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstring>

#include "base/error.h"
#include "profile/analysis.h"
#include "python/programs.h"
#include "runtime/device.h"
#include "runtime/kernel.h"
#include "runtime/memory.h"
#include "runtime/origin.h"
#include "runtime/settings.h"

namespace opentrn::python {

namespace {

using runtime::Device;
using runtime::LaunchRecord;

nb::dict to_dict(const runtime::Totals& t) {
  nb::dict d;
  d["launches"] = t.launches;
  d["device_ps"] = t.device_ps;
  nb::dict busy;
  for (int e = 0; e < isa::kEngines; ++e)
    busy[std::string(isa::name_of(static_cast<isa::Engine>(e))).c_str()] = t.busy_ps[e];
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

nb::dict to_dict(const runtime::Counter& c) {
  nb::dict d;
  d["current"] = c.current;
  d["peak"] = c.peak;
  d["allocated"] = c.allocated;
  d["freed"] = c.freed;
  return d;
}

nb::dict to_dict(const runtime::MemoryStats& s) {
  nb::dict d;
  d["allocated_bytes"] = to_dict(s.allocated_bytes);
  d["reserved_bytes"] = to_dict(s.reserved_bytes);
  d["active_bytes"] = to_dict(s.active_bytes);
  d["requested_bytes"] = to_dict(s.requested_bytes);
  d["num_alloc_retries"] = s.num_alloc_retries;
  d["num_ooms"] = s.num_ooms;
  d["capacity_bytes"] = s.capacity_bytes;
  return d;
}

nb::dict to_dict(const runtime::Kernel& k) {
  nb::dict d;
  d["id"] = k.id;
  d["key"] = k.key;
  d["name"] = k.name;
  d["program"] = ProgramHandle{k.program};
  d["time"] = python::to_dict(k.time);
  d["scratch_bytes"] = k.scratch_bytes;
  nb::dict busy;
  for (int e = 0; e < isa::kEngines; ++e)
    busy[std::string(isa::name_of(static_cast<isa::Engine>(e))).c_str()] = k.busy_ps[e];
  d["busy_ps"] = busy;
  d["dma_busy_ps"] = k.dma_busy_ps;
  d["hbm_bytes"] = k.hbm_bytes;
  d["model_flops"] = k.model_flops;
  d["hardware_flops"] = k.hardware_flops;
  d["compile_ms"] = k.compile_ms;
  d["plan_ms"] = k.plan_ms;
  d["source"] = k.source == runtime::Kernel::Source::disk ? "disk" : "compiled";
  return d;
}

template <class T>
nb::object column(const std::vector<LaunchRecord>& records, T LaunchRecord::*field) {
  auto* values = new T[records.size() ? records.size() : 1];
  for (size_t i = 0; i < records.size(); ++i) values[i] = records[i].*field;
  nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(values, {records.size()}, owner));
}

nb::dict launches() {
  std::vector<LaunchRecord> r = runtime::launch_records();
  nb::dict d;
  d["start_ps"] = column(r, &LaunchRecord::start_ps);
  d["end_ps"] = column(r, &LaunchRecord::end_ps);
  d["host_ps"] = column(r, &LaunchRecord::host_ps);
  d["kernel"] = column(r, &LaunchRecord::kernel);
  d["origin"] = column(r, &LaunchRecord::origin);
  d["device"] = column(r, &LaunchRecord::device);
  d["stream"] = column(r, &LaunchRecord::stream);
  d["step"] = column(r, &LaunchRecord::step);
  d["kind"] = column(r, &LaunchRecord::kind);
  d["bytes"] = column(r, &LaunchRecord::bytes);
  return d;
}

// A few bytes of device memory as they are when all work submitted before has run; asking costs no modelled time.
struct Probe {
  struct State {
    std::atomic<bool> ready{false};
    runtime::DeviceMemory* memory = nullptr;
    const void* address = nullptr;
    std::vector<std::byte> bytes;
  };
  std::shared_ptr<State> state;
};

nb::object probe(uint64_t address, int64_t bytes) {
  const void* pointer = reinterpret_cast<const void*>(address);
  const int index = runtime::device_of(pointer);
  if (index < 0) throw UserError(fmt::format("address {:#x} is not in the memory of a device", address));
  Device& device = Device::get(index);
  if (!device.memory().host(pointer)) return nb::none();  // predict mode: there are no values
  auto state = std::make_shared<Probe::State>();
  state->memory = &device.memory();
  state->address = pointer;
  state->bytes.resize(static_cast<size_t>(bytes));
  device.call_back(
      [](void* argument) {
        std::unique_ptr<std::shared_ptr<Probe::State>> owner(static_cast<std::shared_ptr<Probe::State>*>(argument));
        Probe::State& s = **owner;
        std::memcpy(s.bytes.data(), s.memory->host(s.address), s.bytes.size());
        s.ready.store(true, std::memory_order_release);
      },
      new std::shared_ptr<Probe::State>(state));
  return nb::cast(Probe{state});
}

}  // namespace

void bind_runtime(nb::module_& module) {
  module.def(
      "settings",
      [] {
        const runtime::Settings& s = runtime::settings();
        nb::dict d;
        d["mode"] = s.mode == runtime::Mode::predict ? "predict" : "simulate";
        d["chip"] = s.chip;
        d["lnc"] = s.lnc;
        d["devices"] = s.devices;
        d["threads"] = s.threads;
        d["host_plan"] = std::string(runtime::name_of(s.host_plan));
        d["launch_blocking"] = s.launch_blocking;
        d["cache_dir"] = s.cache_dir;
        d["disk_cache"] = s.disk_cache;
        d["cache_max_bytes"] = s.cache_max_bytes;
        d["memory_programs"] = s.memory_programs;
        return d;
      },
      "The process's settings, as read from the environment.");
  module.def("reload_settings", &runtime::reload_settings);

  module.def("device_count", &Device::count);
  module.def("device_exists", &Device::exists, nb::arg("device"), "Without creating it.");
  module.def(
      "totals", [](int device) { return to_dict(Device::get(device).totals()); }, nb::arg("device") = 0,
      "Modelled totals since the start or the last reset.");
  module.def(
      "reset_totals", [](int device) { Device::get(device).reset_totals(); }, nb::arg("device") = 0);
  module.def(
      "synchronize",
      [](int device) {
        nb::gil_scoped_release release;
        Device::get(device).synchronize();
      },
      nb::arg("device") = 0);
  module.def(
      "host_ps", [](int device) { return Device::get(device).host_ps(); }, nb::arg("device") = 0,
      "The clock's host hand.");
  module.def(
      "advance_host_ps", [](int device, int64_t ps) { Device::get(device).advance_host_ps(ps); }, nb::arg("device"),
      nb::arg("ps"));
  module.def(
      "memory_stats", [](int device) { return to_dict(Device::get(device).memory().stats()); }, nb::arg("device") = 0);

  nb::class_<Probe>(module, "Probe", "Bytes of device memory, read in the order of the device's work.")
      .def_prop_ro("ready", [](const Probe& p) { return p.state->ready.load(std::memory_order_acquire); })
      .def_prop_ro("bytes", [](const Probe& p) -> nb::object {
        if (!p.state->ready.load(std::memory_order_acquire)) return nb::none();
        return nb::bytes(p.state->bytes.data(), p.state->bytes.size());
      });
  module.def("probe", &probe, nb::arg("address"), nb::arg("bytes"),
             "Reads device memory without touching the clock; None in predict mode.");
  module.def(
      "describe_origin", [](int32_t origin) { return runtime::describe_origin(origin); }, nb::arg("origin"),
      "The script's line behind an origin id, empty when unknown.");

  module.def("cache_stats", [] {
    runtime::CacheStats s = runtime::cache_stats();
    nb::dict d;
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
  });
  module.def("clear_cache", &runtime::clear_cache, nb::arg("disk") = false);
  module.def("flush_cache", &runtime::flush_cache, nb::call_guard<nb::gil_scoped_release>());
  module.def("kernel_count", &runtime::kernel_count);
  module.def(
      "kernel",
      [](int32_t id) -> nb::object {
        std::shared_ptr<const runtime::Kernel> kernel = runtime::kernel_by_id(id);
        if (!kernel) return nb::none();
        return to_dict(*kernel);
      },
      nb::arg("id"), "A kernel made in this process, None when it is gone.");
  module.def(
      "kernel_for", [](const graph::Graph& g) { return to_dict(*runtime::kernel_for(g)); }, nb::arg("graph"),
      "The kernel of a graph: from memory, from disk, or compiled now.");

  module.def(
      "bound",
      [](int64_t step_ps, int64_t device_ps, int64_t dispatch_ps, int64_t transfer_ps, int64_t launches, int cores,
         const std::vector<int64_t>& engine_busy_ps, int64_t dma_busy_ps) {
        profile::StepTotals t{.step_ps = step_ps,
                              .device_ps = device_ps,
                              .dispatch_ps = dispatch_ps,
                              .transfer_ps = transfer_ps,
                              .launches = launches,
                              .cores = cores,
                              .dma_busy_ps = dma_busy_ps};
        for (size_t e = 0; e < t.engine_busy_ps.size() && e < engine_busy_ps.size(); ++e)
          t.engine_busy_ps[e] = engine_busy_ps[e];
        profile::Bound b = profile::bound(t);
        return nb::make_tuple(std::string(profile::name_of(b.limit)), b.share, b.sentence);
      },
      nb::kw_only(), nb::arg("step_ps"), nb::arg("device_ps"), nb::arg("dispatch_ps"), nb::arg("transfer_ps"),
      nb::arg("launches"), nb::arg("cores"), nb::arg("engine_busy_ps"), nb::arg("dma_busy_ps"),
      "What bounds a step: (limit, share, one sentence).");

  nb::enum_<runtime::Recording>(module, "Recording")
      .value("off", runtime::Recording::off)
      .value("last_steps", runtime::Recording::last_steps)
      .value("all", runtime::Recording::all);
  module.def("set_recording", &runtime::set_recording, nb::arg("recording"), nb::arg("steps") = 3);
  module.def("mark_step", &runtime::mark_step, "Ends a step on all devices.");
  module.def("launch_records", &launches, "The launches of the steps kept, as NumPy columns.");
}

}  // namespace opentrn::python
