// Device memory as PyTorch's allocator: a thin layer over runtime::DeviceMemory.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace opentrn::bridge {

c10::DeviceAllocator& allocator();
// Memory on a given device; `origin` names the call in out-of-memory messages. Throws torch.OutOfMemoryError.
c10::DataPtr allocate(int device, size_t bytes, int32_t origin);

}  // namespace opentrn::bridge
