// The device guard: how PyTorch switches devices and streams and handles events.
// torch.Stream carries the runtime's stream id; an event handle is a (device, event id) pair on the heap.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "torch/device.h"
#include "torch/dtype.h"

namespace opentrn::bridge {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

struct EventHandle {
  int device = -1;
  runtime::EventId id = 0;
};

EventHandle* handle_of(void* event) { return static_cast<EventHandle*>(event); }

Stream stream_of(Device d, runtime::StreamId id) { return Stream(Stream::UNSAFE, torch_device(index_of(d)), id); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kNeuron; }

  Device exchangeDevice(Device d) const override {
    Device previous = getDevice();
    setDevice(d);
    return previous;
  }
  Device getDevice() const override { return torch_device(current_device()); }
  void setDevice(Device d) const override {
    TORCH_CHECK(d.type() == kNeuron, "Expected a neuron device, got ", d);
    if (d.has_index()) set_current_device(d.index());
  }
  void uncheckedSetDevice(Device d) const noexcept override { set_current_device_unchecked(d.index()); }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(device_count()); }

  c10::DeviceCapability getDeviceCapability(Device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    for (int i = 0; i < static_cast<int>(c10::NUMBER_OF_DEVICE_CAPABILITIES); ++i) {
      if (is_supported(static_cast<c10::ScalarType>(i))) capability.capability_data.capability_bits |= 1ull << i;
    }
    return capability;
  }

  // ---- streams
  Stream getStream(Device d) const override { return stream_of(d, current_stream(index_of(d))); }
  Stream getDefaultStream(Device d) const override { return stream_of(d, 0); }
  Stream getStreamFromGlobalPool(Device d, bool high_priority) const override {
    return getNewStream(d, high_priority ? -1 : 0);
  }
  Stream getNewStream(Device d, int priority) const override {
    return stream_of(d, device(index_of(d)).new_stream(priority));
  }
  Stream exchangeStream(Stream s) const override {
    return stream_of(s.device(), exchange_stream(index_of(s.device()), s.id()));
  }
  void* getStreamNativeHandle(Stream s) const override { return reinterpret_cast<void*>(s.id()); }
  bool queryStream(const Stream& s) const override { return device(index_of(s.device())).query_stream(s.id()); }
  void synchronizeStream(const Stream& s) const override {
    awaited_device(index_of(s.device())).synchronize_stream(s.id());
  }
  void synchronizeDevice(DeviceIndex index) const override {
    awaited_device(index < 0 ? current_device() : index).synchronize();
  }

  // ---- events
  void record(void** event, const Stream& stream, DeviceIndex device_index, c10::EventFlag) const override {
    int index = index_of(stream.device());
    TORCH_CHECK(device_index < 0 || device_index == index, "Event device index ", static_cast<int>(device_index),
                " does not match recording stream's device index ", index, ".");
    EventHandle* handle = handle_of(*event);
    if (!handle) *event = handle = new EventHandle;
    if (handle->id) device(handle->device).release(handle->id);
    handle->device = index;
    handle->id = device(index).record(stream.id());
  }
  void block(void* event, const Stream& stream) const override {
    EventHandle* handle = handle_of(event);
    if (!handle || !handle->id) return;
    int index = index_of(stream.device());
    if (handle->device == index) {
      device(index).wait_stream(stream.id(), handle->id);
    } else {
      // Streams of different devices have no common queue: the host waits.
      awaited_device(handle->device).synchronize(handle->id);
    }
  }
  bool queryEvent(void* event) const override {
    EventHandle* handle = handle_of(event);
    return !handle || !handle->id || device(handle->device).query(handle->id);
  }
  void synchronizeEvent(void* event) const override {
    EventHandle* handle = handle_of(event);
    if (handle && handle->id) awaited_device(handle->device).synchronize(handle->id);
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    EventHandle* handle = handle_of(event);
    if (!handle) return;
    try {
      if (handle->id && !runtime::in_forked_child()) device(handle->device).release(handle->id);
    } catch (...) {
      // A destructor at exit or after a fork has nobody to tell.
    }
    delete handle;
  }
  double elapsedTime(void* start, void* end, DeviceIndex) const override {
    EventHandle *a = handle_of(start), *b = handle_of(end);
    TORCH_CHECK(a && a->id && b && b->id, "Both events must be recorded before calculating elapsed time.");
    TORCH_CHECK(a->device == b->device, "Events were recorded on different devices (neuron:", a->device,
                " and neuron:", b->device, "); elapsed time needs one.");
    return device(a->device).elapsed_ms(a->id, b->id);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace
}  // namespace opentrn::bridge
