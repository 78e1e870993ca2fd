// What the bindings of programs, graphs and kernels share: a program as a Python object, times as dictionaries.
#pragma once

#include <memory>

#include "cost/timing.h"
#include "isa/program.h"
#include "python/module.h"

namespace opentrn::python {

// A program as Python holds it.
struct ProgramHandle {
  std::shared_ptr<const isa::Program> program;
};

// {"total_ps", "events", "skipped_events", "cores": [{"end_ps", "dma_active_ps", ..., "engines": {...}}]}
nb::dict to_dict(const cost::ProgramTime& time);

}  // namespace opentrn::python
