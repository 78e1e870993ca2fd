#include <algorithm>
#include <cctype>
#include <cmath>
#include <unordered_map>

#include <fmt/format.h>

#include "isa/names.h"
#include "isa/text.h"

namespace opentrn::isa {
namespace {

bool is_identifier(std::string_view name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

std::string quoted(std::string_view name) {
  if (is_identifier(name)) return std::string(name);
  std::string out = "\"";
  for (unsigned char c : name) {
    if (c == '"' || c == '\\')
      out += {'\\', static_cast<char>(c)};
    else if (c < 0x20 || c >= 0x7f)
      out += fmt::format("\\x{:02x}", c);
    else
      out += static_cast<char>(c);
  }
  return out + '"';
}

// How each entry of a list is referred to: by name, or as %index where the name is not unique.
class References {
 public:
  template <typename List>
  explicit References(const List& list) {
    std::unordered_map<std::string_view, int> uses;
    for (const auto& item : list) ++uses[item.name];
    texts_.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i)
      texts_.push_back(list[i].name.empty() || uses[list[i].name] > 1 ? fmt::format("%{}", i) : quoted(list[i].name));
  }
  std::string operator[](int64_t index) const {
    return index >= 0 && index < static_cast<int64_t>(texts_.size()) ? texts_[index] : fmt::format("%{}", index);
  }

 private:
  std::vector<std::string> texts_;
};

std::string number(double value) {
  if (std::isnan(value)) return "nan";
  return fmt::format("{}", value);
}

struct ProgramNames {
  References buffers, scalars, kernels;
  explicit ProgramNames(const Program& p) : buffers(p.buffers), scalars(p.scalars), kernels(p.kernels) {}
};

class InstructionPrinter {
 public:
  InstructionPrinter(const CoreProgram& core, const ProgramNames& names)
      : core_(core), names_(names), pools_(core.pools), semaphores_(core.semaphores) {}

  std::string print(const Instruction& i) {
    out_.clear();
    const Opcode op = i.opcode;
    if (op == Opcode::loop_end) {
      out_ = "}";
      if (i.reg != -1) out_ += fmt::format(" i{}", i.reg);
    } else if (op == Opcode::loop_begin) {
      out_ = fmt::format("loop i{} < {}", i.reg, i.count);
    } else if (op == Opcode::rotate) {
      out_ = fmt::format("rotate t{} = {}", i.reg, pools_[i.pool]);
    } else if (op == Opcode::barrier) {
      out_ = "barrier";
    } else {
      out_ = name_of(i.engine);
      if (i.queue >= 0) out_ += fmt::format(".q{}", i.queue);
      out_ += ' ';
      out_ += name_of(op);
      suffix(i);
      operands(i);
    }
    attributes(i);
    signals(i);
    if (op == Opcode::loop_begin) out_ += " {";
    return std::move(out_);
  }

 private:
  void suffix(const Instruction& i) {
    if (i.opcode == Opcode::activation) (out_ += '.') += name_of(i.act);
    if (i.op0 != AluOp::none || i.op1 != AluOp::none) (out_ += '.') += name_of(i.op0);
    if (i.op1 != AluOp::none) (out_ += '.') += name_of(i.op1);
  }

  void terms(const auto& terms) {
    for (const Term& term : terms) out_ += fmt::format("+i{}*{}", term.reg, term.bytes);
  }

  void dims(const SmallVector<Dim, 4>& dims) {
    for (const Dim& dim : dims) out_ += fmt::format("[{},{}]", dim.stride, dim.count);
  }

  void operand(const AccessPattern& ap) {
    if (!ap) {
      out_ += "none";
      return;
    }
    (out_ += name_of(ap.dtype)) += ' ';
    if (ap.memory == Memory::hbm) {
      out_ += names_.buffers[ap.buffer];
    } else {
      const bool known = ap.buffer >= 0 && ap.buffer < static_cast<int>(core_.pools.size());
      if (!known || core_.pools[ap.buffer].memory != ap.memory) (out_ += name_of(ap.memory)) += ':';
      out_ += pools_[ap.buffer];
      out_ += ap.slot < 0 ? "[-]" : fmt::format("[t{}]", ap.slot);
    }
    if (ap.offset != 0) out_ += fmt::format("{:+}", ap.offset);
    terms(ap.terms);
    const bool default_partitions =
        ap.memory == Memory::hbm && ap.partition == 0 && ap.partitions == 1 && ap.partition_stride == 0;
    if (!default_partitions) {
      out_ += fmt::format(" [{}:{}", ap.partition, ap.partition + ap.partitions);
      if (ap.partition_stride != 0) out_ += fmt::format(" step {}", ap.partition_stride);
      out_ += ']';
    }
    if (!ap.dims.empty()) out_ += ' ';
    dims(ap.dims);
  }

  void operands(const Instruction& i) {
    if (!i.dst && !i.dst1 && i.src.empty()) return;
    out_ += ' ';
    operand(i.dst);
    if (i.dst1) {
      out_ += ", ";
      operand(i.dst1);
    }
    for (size_t k = 0; k < i.src.size(); ++k) {
      out_ += k == 0 ? " <- " : ", ";
      operand(i.src[k]);
    }
  }

  void scalar(std::string_view key, const Scalar& s) {
    if (!s) return;
    ((out_ += ' ') += key) += '=';
    if (s.kind == Scalar::Kind::immediate)
      out_ += number(s.value);
    else if (s.kind == Scalar::Kind::argument)
      (out_ += '$') += names_.scalars[s.argument];
    else
      operand(s.tile);
  }

  void integer(std::string_view key, int64_t value, int64_t unset) {
    if (value != unset) out_ += fmt::format(" {}={}", key, value);
  }
  void flag(std::string_view key, bool value) {
    if (value) (out_ += ' ') += key;
  }

  void attributes(const Instruction& i) {
    const bool loop = i.opcode == Opcode::loop_begin || i.opcode == Opcode::loop_end;
    const bool rotate = i.opcode == Opcode::rotate;
    if (i.opcode != Opcode::activation && i.act != ActFn::copy) (out_ += " act=") += name_of(i.act);
    scalar(scalar_name(i.opcode, 0), i.s0);
    scalar(scalar_name(i.opcode, 1), i.s1);
    flag("reverse0", i.reverse0);
    flag("reverse1", i.reverse1);
    flag("accumulate", i.accumulate);
    flag("negate", i.negate);
    flag("skip_out_of_bounds", i.skip_out_of_bounds);
    integer("axes", i.axes, 1);
    if (!loop && !rotate) integer("reg", i.reg, -1);
    if (!rotate) integer("pool", i.pool, -1);
    if (i.kernel != -1) (out_ += " kernel=") += names_.kernels[i.kernel];
    if (i.opcode != Opcode::loop_begin) integer("count", i.count, 0);
    integer("rows", i.rows, 0);
    integer("row_bytes", i.row_bytes, 0);
    integer("channel_multiplier", i.channel_multiplier, 0);
    if (!i.pattern.empty()) {
      out_ += " pattern=";
      dims(i.pattern);
    }
    if (!i.pattern_terms.empty()) {
      out_ += " terms=";
      terms(i.pattern_terms);
    }
    integer("origin", i.origin, -1);
  }

  void signals(const Instruction& i) {
    for (size_t k = 0; k < i.waits.size(); ++k)
      out_ += fmt::format("{}{}>={}", k == 0 ? " wait " : ", ", semaphores_[i.waits[k].semaphore], i.waits[k].count);
    for (size_t k = 0; k < i.posts.size(); ++k)
      out_ += fmt::format("{}{}{:+}", k == 0 ? " post " : ", ", semaphores_[i.posts[k].semaphore], i.posts[k].count);
  }

  const CoreProgram& core_;
  const ProgramNames& names_;
  References pools_, semaphores_;
  std::string out_;
};

void print_buffer(std::string& out, const Buffer& buffer, const References& buffers) {
  out += fmt::format("buffer {} {} bytes={}", quoted(buffer.name), name_of(buffer.kind), buffer.bytes);
  if (buffer.alias >= 0) out += fmt::format(" alias={}", buffers[buffer.alias]);
  if (!buffer.data.empty()) {
    out += " data {";
    for (size_t i = 0; i < buffer.data.size(); ++i) {
      if (i % 32 == 0) out += "\n ";
      if (i % 4 == 0) out += ' ';
      out += fmt::format("{:02x}", static_cast<unsigned>(buffer.data[i]));
    }
    out += "\n}";
  }
  out += '\n';
}

void print_kernel(std::string& out, const GpsimdKernel& kernel, const References& scalars) {
  out += fmt::format("kernel {} {{\n", quoted(kernel.name));
  auto section = [&](std::string_view title, const std::vector<KernelInstruction>& code) {
    if (code.empty()) return;
    out += fmt::format("  {} {{\n", title);
    for (const KernelInstruction& k : code) {
      out += "    ";
      if (k.op == KernelOp::store) {
        out += fmt::format("store.{} {}, r{}\n", name_of(k.type), k.a, k.b);
        continue;
      }
      out += fmt::format("r{} = {}.{}", k.dst, name_of(k.op), name_of(k.type));
      const bool real = k.type == KernelType::f32 || k.type == KernelType::f64;
      if (k.op == KernelOp::load)
        out += fmt::format(" {}", k.a);
      else if (k.op == KernelOp::constant)
        (out += ' ') += real ? number(k.imm) : fmt::format("{}", k.imm_int);
      else if (k.op == KernelOp::argument)
        (out += " $") += scalars[k.imm_int];
      const uint8_t registers[] = {k.a, k.b, k.c};
      for (int i = 0; i < register_operands(k.op); ++i) out += fmt::format("{}r{}", i == 0 ? " " : ", ", registers[i]);
      if (k.op == KernelOp::convert || k.op == KernelOp::bitcast) (out += '.') += name_of(k.from);
      out += '\n';
    }
    out += "  }\n";
  };
  section("prologue", kernel.prologue);
  section("body", kernel.body);
  section("epilogue", kernel.epilogue);
  out += "}\n";
}

void print_core(std::string& out, size_t index, const CoreProgram& core, const ProgramNames& names) {
  out += fmt::format("core {} {{\n", index);
  int loops = 0, slots = 0;  // what the parser would infer
  for (const Instruction& i : core.code) {
    if (i.opcode == Opcode::loop_begin) loops = std::max(loops, i.reg + 1);
    if (i.opcode == Opcode::rotate) slots = std::max(slots, i.reg + 1);
  }
  if (core.loop_registers != loops || core.slot_registers != slots)
    out += fmt::format("  registers loop={} slot={}\n", core.loop_registers, core.slot_registers);
  for (const Pool& pool : core.pools)
    out += fmt::format("  pool {} {} offset={} bytes={} depth={}\n", quoted(pool.name), name_of(pool.memory),
                       pool.offset, pool.bytes, pool.depth);
  for (const Semaphore& semaphore : core.semaphores)
    out += fmt::format("  semaphore {} initial={}\n", quoted(semaphore.name), semaphore.initial);
  InstructionPrinter printer(core, names);
  int depth = 1;
  for (const Instruction& i : core.code) {
    if (i.opcode == Opcode::loop_end) depth = std::max(1, depth - 1);
    out.append(2 * depth, ' ');
    out += printer.print(i);
    out += '\n';
    if (i.opcode == Opcode::loop_begin) ++depth;
  }
  out += "}\n";
}

}  // namespace

std::string print(const Instruction& instruction, const CoreProgram& core, const Program& program) {
  const ProgramNames names(program);
  return InstructionPrinter(core, names).print(instruction);
}

std::string print(const Program& program) {
  const ProgramNames names(program);
  std::string out = fmt::format("program {} chip={}", quoted(program.name), quoted(program.chip));
  if (program.model_flops != 0) out += fmt::format(" model_flops={}", program.model_flops);
  out += '\n';
  for (const Buffer& buffer : program.buffers) print_buffer(out, buffer, names.buffers);
  for (const ScalarArgument& scalar : program.scalars)
    out += fmt::format("scalar {} {}\n", quoted(scalar.name), name_of(scalar.dtype));
  for (const GpsimdKernel& kernel : program.kernels) print_kernel(out, kernel, names.scalars);
  for (size_t i = 0; i < program.cores.size(); ++i) print_core(out, i, program.cores[i], names);
  return out;
}

}  // namespace opentrn::isa
