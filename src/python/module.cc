#include "python/module.h"

NB_MODULE(_core, module) {
  module.doc() = "The core of opentrn: chips, programs, graphs and the runtime, without PyTorch.";
  module.attr("__version__") = OPENTRN_VERSION;
  opentrn::python::bind_errors(module);
  opentrn::python::bind_chips(module);
  opentrn::python::bind_programs(module);
  opentrn::python::bind_graphs(module);
  opentrn::python::bind_runtime(module);
}
