// The current device and the current streams of a thread, and the runtime's devices by index.
// PyTorch calls our device type PrivateUse1; users see it as "neuron".
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "runtime/device.h"

namespace opentrn::bridge {

inline constexpr c10::DeviceType kNeuron = c10::DeviceType::PrivateUse1;

// Number of devices; 0 when the settings are invalid (the error itself is raised at first use).
int device_count() noexcept;

// Device of the calling thread, 0 at first.
int current_device() noexcept;
// Throws for an index that does not exist.
void set_current_device(int index);
void set_current_device_unchecked(int index) noexcept;

// The runtime's device; created at first use, which prints the one-line notice. Cheap afterwards.
runtime::Device& device(int index);
inline runtime::Device& device() { return device(current_device()); }
// The same for a caller that is about to wait: the device's threads follow torch.set_num_threads, which tells nobody.
runtime::Device& awaited_device(int index);
// True once any device was created in this process.
bool initialized() noexcept;

runtime::StreamId current_stream(int device) noexcept;
// Returns the previous one.
runtime::StreamId exchange_stream(int device, runtime::StreamId stream) noexcept;

inline c10::Device torch_device(int index) { return {kNeuron, static_cast<c10::DeviceIndex>(index)}; }
// The device's index, the current device for "neuron" without an index.
inline int index_of(c10::Device d) { return d.has_index() ? d.index() : current_device(); }

}  // namespace opentrn::bridge
