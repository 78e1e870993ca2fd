#include <nanobind/stl/string.h>

#include "compiler/compile.h"
#include "graph/graph.h"
#include "python/programs.h"
#include "runtime/kernel.h"
#include "spec/chip.h"

namespace opentrn::python {

void bind_graphs(nb::module_& module) {
  nb::class_<graph::Graph>(module, "Graph", "A tensor graph: what an operator or an FX graph becomes first.")
      .def_static("parse", [](const std::string& text) { return graph::parse(text); }, nb::arg("text"))
      .def("text", [](const graph::Graph& g) { return graph::print(g); })
      .def("verify", [](const graph::Graph& g) { graph::verify(g); })
      .def("key", [](const graph::Graph& g) { return runtime::kernel_key(g); }, "The program cache's key.")
      .def_prop_ro("name", [](const graph::Graph& g) { return g.name; })
      .def("compile", [](const graph::Graph& g, const spec::Chip& chip, int lnc, bool verify) {
        nb::gil_scoped_release release;
        return ProgramHandle{compiler::compile(g, chip, {.lnc = lnc, .verify = verify})};
      }, nb::arg("chip"), nb::arg("lnc") = 1, nb::arg("verify") = true);
  module.attr("COMPILER_VERSION") = compiler::kCompilerVersion;
  module.attr("PROGRAM_VERSION") = isa::Program::kVersion;
}

}  // namespace opentrn::python
