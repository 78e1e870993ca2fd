// opentrn._core: the core for Python. Each file binds one noun; this header names them.
#pragma once

#include <nanobind/nanobind.h>

namespace opentrn::python {

namespace nb = nanobind;

void bind_errors(nb::module_& module);    // errors.cc: UserError, InternalError, Unsupported, OutOfMemory, AsyncError
void bind_chips(nb::module_& module);     // chips.cc: chip files
void bind_programs(nb::module_& module);  // programs.cc: text, verification, timing, execution
void bind_graphs(nb::module_& module);    // graphs.cc: text and compilation
void bind_runtime(nb::module_& module);   // runtime.cc: settings, totals, kernels, launches, cache

}  // namespace opentrn::python
