#include "runtime/device.h"

#include <algorithm>
#include <cstring>

#include "runtime/device_state.h"
#include "runtime/fork.h"

namespace opentrn::runtime {
namespace {

constexpr int64_t kStagedBytes = 64 << 10;  // copies to the device up to this size travel in the queue

}  // namespace

int Device::index() const { return state_->index; }
const spec::Chip& Device::chip() const { return state_->chip; }
int Device::lnc() const { return state_->lnc; }
DeviceMemory& Device::memory() { return state_->memory; }

// ---- streams and events --------------------------------------------------------------------------
StreamId Device::new_stream(int) {
  require_not_forked();
  std::lock_guard lock(state_->lock);
  return state_->clock.new_stream();
}

void Device::wait_stream(StreamId stream, EventId id) {
  require_not_forked();
  State& s = *state_;
  const Event event = DeviceFactory::instance().event(id);
  State& other = DeviceFactory::instance().owner(id);
  if (&other != &s && !other.done(event.ticket)) {
    s.submit<WaitWork>(WorkKind::wait, sizeof(WaitWork), [&](WaitWork* work) {
      s.clock.delay_stream(stream, event.time_ps);
      if (!work) return;
      work->engine = other.engine.get();
      work->ticket = event.ticket;
    });
    return;
  }
  // All streams of a device run in submission order, so only the clock has to know.
  std::lock_guard lock(s.lock);
  s.clock.delay_stream(stream, event.time_ps);
}

EventId Device::record(StreamId stream) {
  require_not_forked();
  State& s = *state_;
  std::lock_guard lock(s.lock);
  return s.events.add({std::max(s.clock.stream_ps(stream), host_now_ps()), s.submitted()});
}

void Device::release(EventId event) {
  if (in_forked_child() || event == 0) return;
  const int index = EventTable::device_of(event);
  if (index != state_->index && !exists(index)) return;
  State& s = DeviceFactory::instance().owner(event);
  std::lock_guard lock(s.lock);
  s.events.release(event);
}

bool Device::query(EventId id) {
  require_not_forked();
  const Event event = DeviceFactory::instance().event(id);
  advance_host(kQueryPs);
  if (event.time_ps > host_now_ps()) return false;
  // The clock says that it has passed, so what it stands for must be visible.
  DeviceFactory::instance().owner(id).wait_for(event.ticket);
  return true;
}

bool Device::query_stream(StreamId stream) {
  require_not_forked();
  State& s = *state_;
  advance_host(kQueryPs);
  uint64_t ticket = 0;
  {
    std::lock_guard lock(s.lock);
    if (s.clock.stream_ps(stream) > host_now_ps()) return false;
    ticket = s.submitted();
  }
  s.wait_for(ticket);
  return true;
}

void Device::synchronize(EventId id) {
  require_not_forked();
  const Event event = DeviceFactory::instance().event(id);
  State& s = DeviceFactory::instance().owner(id);
  host_waits_until(event.time_ps);
  s.wait_for(event.ticket);
  s.raise_failure(event.ticket);
}

void Device::synchronize_stream(StreamId stream) {
  require_not_forked();
  State& s = *state_;
  uint64_t ticket = 0;
  {
    std::lock_guard lock(s.lock);
    host_waits_until(s.clock.stream_ps(stream));
    ticket = s.submitted();
  }
  s.wait_for(ticket);
  s.raise_failure(ticket);
}

void Device::synchronize() {
  require_not_forked();
  State& s = *state_;
  uint64_t ticket = 0;
  {
    std::lock_guard lock(s.lock);
    host_waits_until(s.clock.last_ps());
    ticket = s.submitted();
  }
  s.wait_for(ticket);
  s.raise_failure(ticket);
}

double Device::elapsed_ms(EventId start, EventId end) const {
  DeviceFactory& factory = DeviceFactory::instance();
  return static_cast<double>(factory.event(end).time_ps - factory.event(start).time_ps) * 1e-9;
}

// ---- work ----------------------------------------------------------------------------------------
void Device::launch(StreamId stream, const std::shared_ptr<const Kernel>& kernel, const LaunchArguments& a) {
  require_not_forked();
  State& s = *state_;
  const Kernel& k = *kernel;
  s.check(k, a);
  // Scratch is free again as soon as the launch is in the queue: later work that gets the same memory runs later.
  void* scratch = s.memory.allocate(k.scratch_bytes, a.origin);
  struct Free {
    DeviceMemory& memory;
    void* address;
    ~Free() { memory.free(address); }
  } free{s.memory, scratch};

  const size_t buffer_bytes = a.buffers.size_bytes(), scalar_bytes = a.scalars.size_bytes();
  const size_t record_bytes = sizeof(LaunchWork) + buffer_bytes + scalar_bytes;
  int64_t end_ps = 0;
  const uint64_t ticket = s.submit<LaunchWork>(
      WorkKind::launch, record_bytes,
      [&](LaunchWork* work) {
        const Span span = s.clock.launch(stream, k.time.total_ps, a.dispatch);
        end_ps = span.end_ps;
        Totals& t = s.totals;
        ++t.launches;
        t.device_ps += span.end_ps - span.start_ps;
        for (size_t engine = 0; engine < 5; ++engine) t.busy_ps[engine] += k.busy_ps[engine];
        t.dma_busy_ps += k.dma_busy_ps;
        t.hbm_bytes += k.hbm_bytes;
        t.model_flops += k.model_flops;
        t.hardware_flops += k.hardware_flops;
        t.dispatches += a.dispatch != Dispatch::none;
        t.dispatch_ps += span.dispatch_ps;
        s.log(stream, span, k.id, a.origin, 0, k.hbm_bytes);
        if (!work) return;
        work->origin = a.origin;
        work->kernel = &k;
        work->owner = k.id >= 0 ? nullptr : new std::shared_ptr<const Kernel>(kernel);
        work->scratch = static_cast<std::byte*>(scratch);
        work->buffers = static_cast<uint32_t>(a.buffers.size());
        work->scalars = static_cast<uint32_t>(a.scalars.size());
        if (buffer_bytes) std::memcpy(work->addresses(), a.buffers.data(), buffer_bytes);
        if (scalar_bytes) std::memcpy(static_cast<void*>(work->values()), a.scalars.data(), scalar_bytes);
      },
      s.blocking);
  if (!s.blocking) return;
  host_waits_until(end_ps);
  s.wait_for(ticket);
  s.raise_failure(ticket);
}

void Device::copy_to_device(StreamId stream, void* device_address, const void* host, int64_t bytes, bool blocking) {
  require_not_forked();
  State& s = *state_;
  if (bytes == 0) return;
  std::byte* const destination = s.view(device_address, bytes, "copy to device");
  const bool staged = bytes <= kStagedBytes;
  const bool waits = blocking && !staged;
  auto account = [&] {
    const Span span = s.clock.transfer(stream, bytes);
    s.totals.host_transfer_bytes += bytes;
    s.totals.host_transfer_ps += span.end_ps - span.start_ps;
    s.log(stream, span, -1, -1, 1, bytes);
    if (waits) host_waits_until(span.end_ps);
  };
  if (staged) {
    s.submit<StageWork>(WorkKind::stage, sizeof(StageWork) + static_cast<size_t>(bytes), [&](StageWork* work) {
      account();
      if (!work) return;
      work->destination = destination;
      work->size = bytes;
      std::memcpy(work->data(), host, static_cast<size_t>(bytes));
    });
    return;
  }
  s.copy(destination, static_cast<const std::byte*>(host), bytes, waits, account);
}

void Device::copy_to_host(StreamId stream, void* host, const void* device_address, int64_t bytes, bool blocking) {
  require_not_forked();
  State& s = *state_;
  if (bytes == 0) return;
  const std::byte* const source = s.view(device_address, bytes, "copy to host");
  s.copy(static_cast<std::byte*>(host), source, bytes, blocking, [&] {
    const Span span = s.clock.transfer(stream, bytes);
    s.totals.host_transfer_bytes += bytes;
    s.totals.host_transfer_ps += span.end_ps - span.start_ps;
    s.log(stream, span, -1, -1, 2, bytes);
    if (blocking) host_waits_until(span.end_ps);
  });
  if (!source) std::memset(host, 0, static_cast<size_t>(bytes));  // nothing was computed
}

void Device::fill(StreamId stream, void* device_address, int value, int64_t bytes) {
  require_not_forked();
  State& s = *state_;
  if (bytes == 0) return;
  std::byte* const destination = s.view(device_address, bytes, "fill");
  s.submit<FillWork>(WorkKind::fill, sizeof(FillWork), [&](FillWork* work) {
    const Span span = s.clock.fill(stream, bytes);
    s.totals.hbm_bytes += bytes;
    s.log(stream, span, -1, -1, 3, bytes);
    if (!work) return;
    work->destination = destination;
    work->value = value;
    work->size = bytes;
  });
}

void Device::call_back(void (*function)(void*), void* argument) {
  if (in_forked_child()) return;
  State& s = *state_;
  if (!s.engine) return function(argument);
  s.submit<CallBackWork>(WorkKind::call_back, sizeof(CallBackWork), [&](CallBackWork* work) {
    if (!work) return;
    work->function = function;
    work->argument = argument;
  });
}

// ---- the clock -----------------------------------------------------------------------------------
int64_t Device::host_ps() const { return host_now_ps(); }
void Device::advance_host_ps(int64_t ps) { advance_host(ps); }

Totals Device::totals() const {
  std::lock_guard lock(state_->lock);
  Totals totals = state_->totals;
  totals.host_ps = host_now_ps();
  totals.core_ps = state_->clock.core_ps();
  return totals;
}

void Device::reset_totals() {
  std::lock_guard lock(state_->lock);
  state_->totals = Totals();
}

}  // namespace opentrn::runtime
