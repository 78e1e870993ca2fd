// Pinned host memory.
#pragma once

#include <c10/core/Allocator.h>

namespace opentrn::bridge {

c10::Allocator* pinned_allocator();
// Whether the address lies in a block of the pinned allocator.
bool is_pinned(const void* pointer);

}  // namespace opentrn::bridge
