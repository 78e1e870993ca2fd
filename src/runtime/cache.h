// The part of the program cache that only the runtime itself needs; the rest is in kernel.h.
#pragma once

namespace opentrn::runtime {

// Forgets all kernels and the settings of the disk cache, after writing what is pending. No device may exist.
void reset_cache();

}  // namespace opentrn::runtime
