#include "base/error.h"
#include "python/module.h"
#include "runtime/device.h"
#include "runtime/memory.h"

namespace opentrn::python {

void bind_errors(nb::module_& module) {
  // Registered last is asked first, so that derived kinds come after what they could be mistaken for.
  nb::exception<UserError>(module, "UserError", PyExc_ValueError);
  nb::exception<InternalError>(module, "InternalError", PyExc_AssertionError);
  nb::exception<Unsupported>(module, "Unsupported", PyExc_NotImplementedError);
  nb::exception<runtime::OutOfMemory>(module, "OutOfMemory", PyExc_MemoryError);
  nb::exception<runtime::AsyncError>(module, "AsyncError", PyExc_RuntimeError);
}

}  // namespace opentrn::python
