#include "spec/chip.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/module.h"

namespace opentrn::python {

void bind_chips(nb::module_& module) {
  using spec::Chip;
  nb::class_<spec::Parameter>(module, "Parameter", "A number of a chip file, with its unit, source and grade.")
      .def_ro("path", &spec::Parameter::path)
      .def_ro("value", &spec::Parameter::value)
      .def_ro("unit", &spec::Parameter::unit)
      .def_ro("source", &spec::Parameter::source)
      .def_ro("note", &spec::Parameter::note)
      .def_prop_ro("grade", [](const spec::Parameter& p) { return std::string(spec::name_of(p.grade)); });

  nb::class_<Chip>(module, "Chip", "A chip file.")
      .def_ro("name", &Chip::name)
      .def_ro("title", &Chip::title)
      .def_ro("hash", &Chip::hash)
      .def_ro("cores_per_chip", &Chip::cores_per_chip)
      .def_ro("lnc_allowed", &Chip::lnc_allowed)
      .def_ro("lnc_default", &Chip::lnc_default)
      .def_ro("partitions", &Chip::partitions)
      .def_ro("sbuf_bytes_per_partition", &Chip::sbuf_bytes_per_partition)
      .def_ro("psum_bytes_per_partition", &Chip::psum_bytes_per_partition)
      .def_ro("psum_banks", &Chip::psum_banks)
      .def_ro("hbm_bytes_per_core", &Chip::hbm_bytes_per_core)
      .def_ro("hbm_gb_s_per_core", &Chip::hbm_gb_s_per_core)
      .def_ro("tensor_rows", &Chip::tensor_rows)
      .def_ro("tensor_columns", &Chip::tensor_columns)
      .def_ro("moving_free_max", &Chip::moving_free_max)
      .def_ro("dma_engines", &Chip::dma_engines)
      .def_ro("dma_bytes_per_ns_per_engine", &Chip::dma_bytes_per_ns_per_engine)
      .def_ro("dma_peak_bytes_per_ns_per_engine", &Chip::dma_peak_bytes_per_ns_per_engine)
      .def_ro("dispatch_eager_us", &Chip::dispatch_eager_us)
      .def_ro("dispatch_eager_min_us", &Chip::dispatch_eager_min_us)
      .def_ro("dispatch_eager_max_us", &Chip::dispatch_eager_max_us)
      .def_ro("launch_us", &Chip::launch_us)
      .def_ro("launch_compiled_us", &Chip::launch_compiled_us)
      .def_ro("host_to_device_gb_s", &Chip::host_to_device_gb_s)
      .def_ro("peak_tflops", &Chip::peak_tflops, "Per physical core, by dtype.")
      .def_prop_ro("clock_ghz",
                   [](const Chip& chip) {
                     std::vector<double> ghz;
                     for (const spec::EngineSpec& engine : chip.engines) ghz.push_back(engine.ghz);
                     return ghz;
                   },
                   "Clocks of the tensor, vector, scalar, gpsimd and sync engine.")
      .def_prop_ro("parameters", [](const Chip& chip) { return chip.parameters; })
      .def("grade_counts", &Chip::grade_counts);

  module.def("chip_names", &spec::chip_names, "Names of the chip files found.");
  module.def("chip", &spec::chip, nb::arg("name"), nb::rv_policy::reference, "The chip of that name.");
}

}  // namespace opentrn::python
