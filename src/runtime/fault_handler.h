// Explains a segmentation fault that is a host access to device memory: which device, which tensor, made where.
#pragma once

namespace opentrn::runtime {

// Installs the handler, once. It prints its explanation on stderr and leaves the fault to the handler before it.
void explain_faults();

}  // namespace opentrn::runtime
