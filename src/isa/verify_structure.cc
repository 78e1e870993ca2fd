#include "isa/verify_structure.h"

#include <algorithm>

#include <fmt/format.h>

#include "isa/access.h"
#include "isa/names.h"

namespace opentrn::isa {
namespace {

void check_declarations(const Program& program, const spec::Chip& chip, Findings& findings) {
  auto fail = [&](std::string message) { findings.add(0, -1, std::move(message)); };
  if (program.chip != chip.name)
    fail(fmt::format("the program is for chip '{}', not for '{}'", program.chip, chip.name));
  if (program.cores.empty() || program.cores.size() > 2)
    fail(fmt::format("a program has 1 or 2 cores, this one has {}", program.cores.size()));
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.bytes < 0) fail(fmt::format("buffer '{}' has {} bytes", buffer.name, buffer.bytes));
    if (buffer.alias < -1 || buffer.alias >= static_cast<int64_t>(b))
      fail(fmt::format("buffer '{}' aliases buffer {}; an alias names an earlier buffer", buffer.name, buffer.alias));
    const bool constant = buffer.kind == Buffer::Kind::constant;
    if (constant && static_cast<int64_t>(buffer.data.size()) != buffer.bytes)
      fail(fmt::format("constant '{}' has {} bytes but {} bytes of data", buffer.name, buffer.bytes,
                       buffer.data.size()));
    if (!constant && !buffer.data.empty()) fail(fmt::format("buffer '{}' has data but is no constant", buffer.name));
    if (constant && buffer.alias >= 0) fail(fmt::format("constant '{}' cannot be an alias", buffer.name));
  }
  for (const ScalarArgument& s : program.scalars)
    if (s.dtype != DType::f32 && s.dtype != DType::f64 && s.dtype != DType::i32 && s.dtype != DType::i64)
      fail(fmt::format("scalar '{}' is {}; scalars are f32, f64, i32 or i64", s.name, name_of(s.dtype)));
}

class CoreStructure {
 public:
  CoreStructure(const Program& program, int core, const spec::Chip& chip, Findings& findings)
      : program_(program), code_(program.cores[core]), core_(core), chip_(chip), findings_(findings) {}

  void check() {
    memory();
    if (static_cast<int>(code_.semaphores.size()) > chip_.semaphores)
      fail(-1, "{} semaphores are declared, {} has {}", code_.semaphores.size(), chip_.name, chip_.semaphores);
    for (const Semaphore& s : code_.semaphores)
      if (s.initial < 0) fail(-1, "semaphore '{}' starts at {}; it must not be negative", s.name, s.initial);
    if (code_.loop_registers < 0 || code_.loop_registers > chip_.engine_registers)
      fail(-1, "{} loop registers are used, a sequencer of {} has {}", code_.loop_registers, chip_.name,
           chip_.engine_registers);
    for (size_t k = 0; k < code_.code.size() && !findings_.full(); ++k) instruction(static_cast<int>(k));
    if (!loops_.empty()) fail(loops_.back(), "this loop is not closed");
  }

 private:
  template <typename... Args>
  void fail(int index, fmt::format_string<Args...> text, Args&&... args) {
    findings_.add(core_, index, fmt::format(text, std::forward<Args>(args)...));
  }

  void memory() {
    for (const Pool& pool : code_.pools) {
      if (pool.memory != Memory::sbuf && pool.memory != Memory::psum) {
        fail(-1, "pool '{}' lies in {}; a pool lies in sbuf or psum", pool.name, name_of(pool.memory));
        continue;
      }
      const int64_t capacity =
          pool.memory == Memory::sbuf ? chip_.sbuf_bytes_per_partition : chip_.psum_bytes_per_partition;
      const bool sane = pool.offset >= 0 && pool.bytes >= 1 && pool.depth >= 1 && pool.bytes <= capacity &&
                        pool.depth <= capacity && pool.offset <= capacity;
      if (!sane || pool.offset + pool.bytes * pool.depth > capacity)
        fail(-1, "pool '{}' takes {} slots of {} bytes from offset {}, {} of {} has {} bytes per partition", pool.name,
             pool.depth, pool.bytes, pool.offset, name_of(pool.memory), chip_.name, capacity);
    }
  }

  bool loop_register_active(int16_t reg) const {
    return std::any_of(loops_.begin(), loops_.end(), [&](int begin) { return code_.code[begin].reg == reg; });
  }

  template <typename Terms>
  void terms(int index, std::string_view what, const Terms& terms) {
    for (const Term& term : terms)
      if (!loop_register_active(term.reg))
        fail(index, "{} depends on loop register i{}, which no enclosing loop defines", what, term.reg);
  }

  void instruction(int index) {
    const Instruction& i = code_.code[index];
    switch (i.opcode) {
      case Opcode::loop_begin:
        if (i.count < 1) fail(index, "a loop runs at least once, this one {} times", i.count);
        if (i.reg < 0 || i.reg >= code_.loop_registers)
          fail(index, "loop register i{} does not exist: the core has {}", i.reg, code_.loop_registers);
        else if (loop_register_active(i.reg))
          fail(index, "loop register i{} is in use by an enclosing loop", i.reg);
        loops_.push_back(index);
        break;
      case Opcode::loop_end:
        if (loops_.empty())
          fail(index, "this loop end has no loop");
        else
          loops_.pop_back();
        break;
      case Opcode::rotate:
        if (i.pool < 0 || i.pool >= static_cast<int>(code_.pools.size()))
          fail(index, "rotate names pool {}, {} pools are declared", i.pool, code_.pools.size());
        if (i.reg < 0 || i.reg >= code_.slot_registers)
          fail(index, "slot register t{} does not exist: the core has {}", i.reg, code_.slot_registers);
        break;
      default: break;
    }
    const bool plain = is_sequencer(i.opcode) && i.opcode != Opcode::event_semaphore;
    if (plain && (!i.waits.empty() || !i.posts.empty()))
      fail(index, "{} can neither wait nor post; use an event_semaphore beside it", name_of(i.opcode));
    for (const auto* signals : {&i.waits, &i.posts})
      for (const Signal& s : *signals) {
        if (s.semaphore < 0 || s.semaphore >= static_cast<int>(code_.semaphores.size()))
          fail(index, "semaphore %{} does not exist: {} are declared", s.semaphore, code_.semaphores.size());
        if (s.count < 1) fail(index, "a wait or post has a count of at least 1, not {}", s.count);
      }
    if (is_dma(i.opcode) && (i.queue < 0 || i.queue >= kMaxQueues))
      fail(index, "queue {} does not exist: a transfer names a queue q0 to q{}", i.queue, kMaxQueues - 1);
    if (i.opcode == Opcode::gpsimd_kernel && (i.kernel < 0 || i.kernel >= static_cast<int>(program_.kernels.size())))
      fail(index, "kernel %{} does not exist: {} are declared", i.kernel, program_.kernels.size());
    for (const Scalar* s : {&i.s0, &i.s1})
      if (s->kind == Scalar::Kind::argument &&
          (s->argument < 0 || s->argument >= static_cast<int>(program_.scalars.size())))
        fail(index, "scalar %{} does not exist: {} are declared", s->argument, program_.scalars.size());
    for (const OperandUse& use : operand_uses(i, program_)) operand(index, use);
    terms(index, "the pattern", i.pattern_terms);
  }

  void operand(int index, const OperandUse& use) {
    const AccessPattern& ap = *use.pattern;
    if (ap.memory == Memory::hbm) {
      if (ap.buffer < 0 || ap.buffer >= static_cast<int>(program_.buffers.size()))
        fail(index, "{} names buffer %{}, {} are declared", use.name, ap.buffer, program_.buffers.size());
    } else {
      if (ap.buffer < 0 || ap.buffer >= static_cast<int>(code_.pools.size()))
        fail(index, "{} names pool %{}, {} are declared", use.name, ap.buffer, code_.pools.size());
      else if (code_.pools[ap.buffer].memory != ap.memory)
        fail(index, "{} lies in {}, its pool '{}' in {}", use.name, name_of(ap.memory), code_.pools[ap.buffer].name,
             name_of(code_.pools[ap.buffer].memory));
      if (ap.slot < 0 || ap.slot >= code_.slot_registers)
        fail(index, "{} has slot register t{}; the core has {}", use.name, ap.slot, code_.slot_registers);
    }
    if (ap.partitions < 1) fail(index, "{} has {} partitions", use.name, ap.partitions);
    for (const Dim& dim : ap.dims)
      if (dim.count < 1) fail(index, "{} has a dimension of {} elements", use.name, dim.count);
    terms(index, use.name, ap.terms);
  }

  const Program& program_;
  const CoreProgram& code_;
  const int core_;
  const spec::Chip& chip_;
  Findings& findings_;
  std::vector<int> loops_;  // indices of the open loop_begins
};

}  // namespace

void check_structure(const Program& program, const spec::Chip& chip, Findings& findings) {
  check_declarations(program, chip, findings);
  for (size_t core = 0; core < program.cores.size(); ++core)
    CoreStructure(program, static_cast<int>(core), chip, findings).check();
}

}  // namespace opentrn::isa
