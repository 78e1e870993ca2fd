#include "python/programs.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "cost/conformance.h"
#include "cost/cost.h"
#include "exec/interpreter.h"
#include "exec/plan.h"
#include "isa/mutate.h"
#include "isa/serialize.h"
#include "isa/text.h"
#include "isa/verify.h"
#include "spec/chip.h"

namespace opentrn::python {

namespace {

std::string str(std::string_view view) { return std::string(view); }

const isa::CoreProgram& core_of(const isa::Program& program, int core) {
  if (core < 0 || core >= static_cast<int>(program.cores.size()))
    throw UserError(fmt::format("program {} has {} core(s): there is no core {}", program.name, program.cores.size(), core));
  return program.cores[static_cast<size_t>(core)];
}

std::string_view kind_name(isa::Buffer::Kind kind) {
  switch (kind) {
    case isa::Buffer::Kind::input: return "input";
    case isa::Buffer::Kind::output: return "output";
    case isa::Buffer::Kind::scratch: return "scratch";
    case isa::Buffer::Kind::constant: return "constant";
  }
  return "?";
}

// The element type with which the program first touches a buffer; empty if it never does.
std::string dtype_of(const isa::Program& program, size_t buffer) {
  auto matches = [&](const isa::AccessPattern& ap) {
    return ap.memory == isa::Memory::hbm && static_cast<size_t>(ap.buffer) == buffer;
  };
  for (const isa::CoreProgram& core : program.cores)
    for (const isa::Instruction& instruction : core.code) {
      if (matches(instruction.dst)) return str(name_of(instruction.dst.dtype));
      for (const isa::AccessPattern& ap : instruction.src)
        if (matches(ap)) return str(name_of(ap.dtype));
    }
  return "";
}

// A column of a timeline as a NumPy array that owns its memory.
template <class T, class Get>
nb::object column(const std::vector<cost::Event>& events, Get get) {
  auto* values = new T[events.size() ? events.size() : 1];
  for (size_t i = 0; i < events.size(); ++i) values[i] = static_cast<T>(get(events[i]));
  nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(values, {events.size()}, owner));
}

nb::dict columns(const cost::Timeline& timeline) {
  const std::vector<cost::Event>& e = timeline.events;
  nb::dict d;
  d["core"] = column<int32_t>(e, [](const cost::Event& x) { return x.core; });
  d["instruction"] = column<int32_t>(e, [](const cost::Event& x) { return x.instruction; });
  d["track"] = column<int8_t>(e, [](const cost::Event& x) { return x.track; });
  d["start_ps"] = column<int64_t>(e, [](const cost::Event& x) { return x.start_ps; });
  d["end_ps"] = column<int64_t>(e, [](const cost::Event& x) { return x.end_ps; });
  d["wait_ps"] = column<int64_t>(e, [](const cost::Event& x) { return x.wait_ps; });
  d["visible_ps"] = column<int64_t>(e, [](const cost::Event& x) { return x.visible_ps; });
  d["blocked_by"] = column<int32_t>(e, [](const cost::Event& x) { return x.blocked_by; });
  d["bytes"] = column<int64_t>(e, [](const cost::Event& x) { return x.bytes; });
  d["dropped"] = timeline.dropped;
  return d;
}

using Array = nb::ndarray<nb::c_contig, nb::device::cpu>;
using ReadOnly = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

void run_program(const ProgramHandle& handle, const spec::Chip& chip, const std::vector<Array>& arrays,
                 const nb::list& scalars) {
  const isa::Program& program = *handle.program;
  std::vector<std::vector<std::byte>> own;
  std::vector<std::byte*> addresses;
  size_t next = 0;
  for (const isa::Buffer& buffer : program.buffers) {
    if (buffer.alias >= 0) {
      addresses.push_back(addresses[static_cast<size_t>(buffer.alias)]);
    } else if (buffer.kind == isa::Buffer::Kind::input || buffer.kind == isa::Buffer::Kind::output) {
      if (next >= arrays.size())
        throw UserError(fmt::format("program {}: no array was given for {} {}", program.name, kind_name(buffer.kind), buffer.name));
      const Array& array = arrays[next++];
      if (static_cast<int64_t>(array.nbytes()) < buffer.bytes)
        throw UserError(fmt::format("program {}: {} {} needs {} bytes, the array has {}", program.name,
                                    kind_name(buffer.kind), buffer.name, buffer.bytes, array.nbytes()));
      addresses.push_back(static_cast<std::byte*>(array.data()));
    } else {
      own.emplace_back(static_cast<size_t>(buffer.bytes));
      if (!buffer.data.empty()) std::memcpy(own.back().data(), buffer.data.data(), buffer.data.size());
      addresses.push_back(own.back().data());
    }
  }
  if (next != arrays.size())
    throw UserError(fmt::format("program {} takes {} arrays (inputs and outputs that alias no input), {} were given",
                                program.name, next, arrays.size()));
  if (nb::len(scalars) != program.scalars.size())
    throw UserError(fmt::format("program {} takes {} scalars, {} were given", program.name, program.scalars.size(), nb::len(scalars)));
  std::vector<exec::ScalarValue> values;
  for (nb::handle item : scalars) {
    exec::ScalarValue value;
    if (nb::isinstance<nb::int_>(item)) {
      value.kind = exec::ScalarValue::Kind::integer;
      value.integer = nb::cast<int64_t>(item);
      value.real = static_cast<double>(value.integer);
    } else {
      value.real = nb::cast<double>(item);
    }
    values.push_back(value);
  }
  nb::gil_scoped_release release;
  exec::Executable executable(handle.program, chip);
  std::vector<std::unique_ptr<exec::CoreMemory>> memories;
  std::vector<exec::CoreMemory*> pointers;
  for (int core = 0; core < executable.cores(); ++core) {
    memories.push_back(std::make_unique<exec::CoreMemory>(chip));
    pointers.push_back(memories.back().get());
  }
  exec::Fault fault;
  if (!exec::run(executable, pointers, addresses, values, fault))
    throw UserError(fmt::format("{} (core {}, instruction {} of program {})", fault.message, fault.core, fault.instruction, program.name));
}

}  // namespace

nb::dict to_dict(const cost::ProgramTime& time) {
  nb::dict d;
  d["total_ps"] = time.total_ps;
  d["events"] = time.events;
  d["skipped_events"] = time.skipped_events;
  nb::list cores;
  for (const cost::CoreTime& core : time.cores) {
    nb::dict c, engines;
    c["end_ps"] = core.end_ps;
    c["dma_active_ps"] = core.dma_active_ps;
    c["dma_bytes"] = core.dma_bytes;
    c["hbm_read_bytes"] = core.hbm_read_bytes;
    c["hbm_write_bytes"] = core.hbm_write_bytes;
    c["dma_transfers"] = core.dma_transfers;
    c["matmul_flops"] = core.matmul_flops;
    c["throttled_ps"] = core.throttled_ps;
    for (int e = 0; e < isa::kEngines; ++e) {
      const cost::EngineTime& engine = core.engines[static_cast<size_t>(e)];
      nb::dict t;
      t["busy_ps"] = engine.busy_ps;
      t["wait_ps"] = engine.wait_ps;
      t["instructions"] = engine.instructions;
      engines[str(isa::name_of(static_cast<isa::Engine>(e))).c_str()] = t;
    }
    c["engines"] = engines;
    cores.append(c);
  }
  d["cores"] = cores;
  return d;
}

void bind_programs(nb::module_& module) {
  nb::class_<ProgramHandle>(module, "Program", "A tile program: what one logical NeuronCore executes.")
      .def_static("parse", [](const std::string& text) {
        return ProgramHandle{std::make_shared<isa::Program>(isa::parse(text))};
      }, nb::arg("text"), "From the text form; UserError with line and column.")
      .def_static("deserialize", [](nb::bytes bytes) {
        std::span<const std::byte> span(static_cast<const std::byte*>(bytes.data()), bytes.size());
        return ProgramHandle{std::make_shared<isa::Program>(isa::deserialize(span))};
      }, nb::arg("data"))
      .def("serialize", [](const ProgramHandle& h) {
        std::vector<std::byte> bytes = isa::serialize(*h.program);
        return nb::bytes(bytes.data(), bytes.size());
      })
      .def("digest", [](const ProgramHandle& h) { return isa::digest(*h.program); })
      .def("text", [](const ProgramHandle& h) { return isa::print(*h.program); })
      .def("host_plan", [](const ProgramHandle& h) { return exec::describe_plan(*h.program); },
           "How the host executes the program, as text (docs/host-plan.md).")
      .def_prop_ro("name", [](const ProgramHandle& h) { return h.program->name; })
      .def_prop_ro("chip", [](const ProgramHandle& h) { return h.program->chip; })
      .def_prop_ro("cores", [](const ProgramHandle& h) { return h.program->cores.size(); })
      .def_prop_ro("model_flops", [](const ProgramHandle& h) { return h.program->model_flops; })
      .def_prop_ro("scratch_bytes", [](const ProgramHandle& h) { return h.program->scratch_bytes(); })
      .def_prop_ro("buffers", [](const ProgramHandle& h) {
        nb::list list;
        for (size_t i = 0; i < h.program->buffers.size(); ++i) {
          const isa::Buffer& buffer = h.program->buffers[i];
          nb::dict d;
          d["dtype"] = dtype_of(*h.program, i);
          d["name"] = buffer.name;
          d["kind"] = str(kind_name(buffer.kind));
          d["bytes"] = buffer.bytes;
          d["alias"] = buffer.alias;
          list.append(d);
        }
        return list;
      })
      .def_prop_ro("scalars", [](const ProgramHandle& h) {
        std::vector<std::pair<std::string, std::string>> list;
        for (const isa::ScalarArgument& scalar : h.program->scalars) list.emplace_back(scalar.name, str(name_of(scalar.dtype)));
        return list;
      }, "Names and dtypes of the launch-time scalars.")
      .def("size", [](const ProgramHandle& h, int core) { return core_of(*h.program, core).code.size(); },
           nb::arg("core") = 0, "Number of instructions in the code of a core.")
      .def("code", [](const ProgramHandle& h, int core) {
        const isa::CoreProgram& code = core_of(*h.program, core);
        nb::list list;
        for (const isa::Instruction& instruction : code.code) {
          nb::dict d;
          d["opcode"] = str(isa::name_of(instruction.opcode));
          d["engine"] = str(isa::name_of(instruction.engine));
          d["queue"] = static_cast<int>(instruction.queue);
          d["dma"] = isa::is_dma(instruction.opcode);
          d["activation"] = instruction.opcode == isa::Opcode::activation ? str(isa::name_of(instruction.act)) : "";
          d["origin"] = instruction.origin;
          nb::list waits, posts;
          for (const isa::Signal& s : instruction.waits) waits.append(nb::make_tuple(s.semaphore, s.count));
          for (const isa::Signal& s : instruction.posts) posts.append(nb::make_tuple(s.semaphore, s.count));
          d["waits"] = waits;
          d["posts"] = posts;
          d["text"] = isa::print(instruction, code, *h.program);
          list.append(d);
        }
        return list;
      }, nb::arg("core") = 0, "The instructions of a core as dictionaries.")
      .def("semaphores", [](const ProgramHandle& h, int core) {
        std::vector<std::string> names;
        for (const isa::Semaphore& s : core_of(*h.program, core).semaphores) names.push_back(s.name);
        return names;
      }, nb::arg("core") = 0)
      .def_prop_ro("mutations", [](const ProgramHandle& h) { return isa::mutation_count(*h.program); },
                   "Number of small damages that `mutated` can do.")
      .def("mutated", [](const ProgramHandle& h, size_t which) {
        if (which >= isa::mutation_count(*h.program)) throw UserError(fmt::format("program {} has no mutation {}", h.program->name, which));
        auto copy = std::make_shared<isa::Program>(*h.program);
        std::string what = isa::mutate(*copy, which);
        return nb::make_tuple(ProgramHandle{copy}, what);
      }, nb::arg("which"), "A copy with one instruction or semaphore damaged, and what was done.")
      .def("check", [](const ProgramHandle& h, const spec::Chip& chip) {
        nb::list list;
        for (const isa::Finding& f : isa::check(*h.program, chip)) list.append(nb::make_tuple(f.core, f.instruction, f.message));
        return list;
      }, nb::arg("chip"), "What breaks the chip's rules, races included: (core, instruction, message).")
      .def("verify", [](const ProgramHandle& h, const spec::Chip& chip) { isa::verify(*h.program, chip); }, nb::arg("chip"))
      .def("time", [](const ProgramHandle& h, const spec::Chip& chip) {
        cost::ProgramTime time;
        { nb::gil_scoped_release release; time = cost::time_program(*h.program, chip); }
        return to_dict(time);
      }, nb::arg("chip"), "Modelled time, in picoseconds.")
      .def("timeline", [](const ProgramHandle& h, const spec::Chip& chip, int64_t limit) {
        cost::Timeline timeline;
        cost::ProgramTime time;
        { nb::gil_scoped_release release; time = cost::record_timeline(*h.program, chip, timeline, limit); }
        return nb::make_tuple(to_dict(time), columns(timeline));
      }, nb::arg("chip"), nb::arg("limit") = 1'000'000, "Modelled time, and every event as NumPy columns.")
      .def("isolated_ns", [](const ProgramHandle& h, int core, int instruction, const spec::Chip& chip) {
        const isa::CoreProgram& code = core_of(*h.program, core);
        return cost::isolated_ns(code.code.at(static_cast<size_t>(instruction)), *h.program, chip);
      }, nb::arg("core"), nb::arg("instruction"), nb::arg("chip"))
      .def("transfer", [](const ProgramHandle& h, int core, int instruction, const spec::Chip& chip) {
        const isa::CoreProgram& code = core_of(*h.program, core);
        cost::Transfer t = cost::transfer(code.code.at(static_cast<size_t>(instruction)), *h.program, chip);
        nb::dict d;
        d["engines"] = t.engines;
        d["engine_ps"] = t.engine_ps;
        d["start_ps"] = t.start_ps;
        d["issue_ps"] = t.issue_ps;
        d["complete_ps"] = t.complete_ps;
        d["bytes"] = t.bytes;
        d["descriptors"] = t.descriptors;
        return d;
      }, nb::arg("core"), nb::arg("instruction"), nb::arg("chip"))
      .def("run", &run_program, nb::arg("chip"), nb::arg("arrays"), nb::arg("scalars") = nb::list(),
           "Executes the program on NumPy arrays: inputs, then the outputs that alias no input, in the program's order.");
  auto rows = [](const std::vector<cost::Conformance>& found) {
    nb::list list;
    for (const cost::Conformance& row : found) {
      nb::dict d;
      d["name"] = row.name;
      d["model_ns"] = row.model_ns;
      d["law_ns"] = row.law_ns;
      d["source"] = row.source;
      d["note"] = row.note;
      list.append(d);
    }
    return list;
  };
  module.def("instruction_conformance", [rows](const spec::Chip& chip) { return rows(cost::instruction_conformance(chip)); },
             nb::arg("chip"), "Isolated instructions: the model beside the public laws.");
  module.def("dma_conformance", [rows](const spec::Chip& chip) { return rows(cost::dma_conformance(chip)); }, nb::arg("chip"));
  module.def("simd_target", &exec::simd_target, "Name of the SIMD target in use.");
}

}  // namespace opentrn::python
