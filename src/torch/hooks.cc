// The accelerator hooks: what generic PyTorch code asks a device for.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "torch/allocator.h"
#include "torch/device.h"
#include "torch/generator.h"
#include "torch/host_allocator.h"
#include "torch/storage.h"

namespace opentrn::bridge {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return index >= 0 && index < device_count() && runtime::Device::exists(index);
  }
  void init() const override { device(current_device()); }

  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device()); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    auto previous = getCurrentDevice();
    if (index >= 0) set_current_device(index);
    return previous;
  }
  // Nothing is created by switching, so this is the same.
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }

  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Device getDeviceFromPtr(void* data) const override {
    int index = runtime::device_of(data);
    TORCH_CHECK(index >= 0, "The address ", data, " belongs to no neuron device");
    return torch_device(index);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

const bool g_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
}  // namespace opentrn::bridge
