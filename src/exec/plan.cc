#include "exec/plan.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "exec/executable.h"
#include "exec/host_forward.h"
#include "exec/host_layout.h"
#include "exec/host_matmul.h"
#include "exec/host_strips.h"
#include "exec/host_units.h"
#include "isa/text.h"

namespace opentrn::exec {
namespace {

using host::Node;
using host::Unit;

constexpr const char* kTooLarge = "more dimensions or loops than the passes hold";
constexpr size_t kInlineBuffers = 64;
constexpr double kGroupNs = 20'000;  // a group is worth claiming from this much work on

Scratch& thread_scratch() {
  thread_local const std::unique_ptr<Scratch> scratch = std::make_unique<Scratch>();
  return *scratch;
}

bool multiplies(const std::vector<Node>& nodes) {
  return std::ranges::any_of(nodes, [](const Node& node) {
    return node.is_loop() ? multiplies(node.body) : node.instruction.opcode == isa::Opcode::nc_matmul;
  });
}

// What a node takes on the host, roughly: only to cut loops into groups.
double cost_ns(const Node& node, const isa::Program& program) {
  if (node.is_loop()) {
    double sum = 0;
    for (const Node& inner : node.body) sum += cost_ns(inner, program);
    return sum * static_cast<double>(node.instruction.count);
  }
  const isa::Instruction& i = node.instruction;
  if (i.opcode == isa::Opcode::nc_matmul)
    return 0.02 * static_cast<double>(i.src[0].partitions * i.src[0].free_elements() * i.src[1].free_elements());
  double elements = 0;
  for (const isa::OperandUse& use : isa::operand_uses(i, program))
    elements = std::max(elements, static_cast<double>(use.pattern->elements()));
  return 50 + 0.3 * elements;
}

// A unit ready to run.
struct Ready {
  Executable::Code prologue, body;
  int core = 0, stage = 0;
  int16_t reg = -1;            // the loop whose iterations are shared out, -1: one group
  int64_t count = 1, chunk = 1;
  int groups = 1;
  size_t arena = 0;
  int loop_registers = 0;
};

bool run_steps(const Executable::Code& code, Frame& frame, int64_t* loops, int& failed) {
  const Step* const steps = code.steps.data();
  const size_t end = code.steps.size();
  for (size_t at = 0; at < end;) {
    const Step& step = steps[at];
    switch (step.kind) {
      case Step::Kind::execute:
        if (!step.operation->run(frame)) {
          failed = step.instruction;
          return false;
        }
        ++at;
        break;
      case Step::Kind::loop_begin:
        loops[step.reg] = 0;
        ++at;
        break;
      default:  // loop_end
        if (++loops[step.reg] < step.count) at = static_cast<size_t>(step.target);
        else ++at;
    }
  }
  return true;
}

}  // namespace

WorkerMemory::WorkerMemory(const spec::Chip& chip) : chip_(chip) {}
WorkerMemory::~WorkerMemory() { std::free(arena_); }

CoreMemory& WorkerMemory::core(int core) {
  const auto index = static_cast<size_t>(core);
  if (cores_.size() <= index) cores_.resize(index + 1);
  if (!cores_[index]) cores_[index] = std::make_unique<CoreMemory>(chip_);
  return *cores_[index];
}

std::byte* WorkerMemory::arena(size_t bytes) {
  if (bytes > arena_bytes_) {
    std::free(arena_);
    arena_bytes_ = 0;
    const size_t rounded = (bytes + 4095) / 4096 * 4096;
    arena_ = static_cast<std::byte*>(std::aligned_alloc(4096, rounded));
    if (!arena_) throw std::bad_alloc();
    arena_bytes_ = rounded;
  }
  return arena_;
}

namespace {

void print_nodes(std::span<const Node> nodes, int indent, const isa::Program& program, std::string& out) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  for (const Node& node : nodes) {
    std::string line = isa::print(node.instruction, isa::CoreProgram(), program);
    // The engine no longer matters.
    if (!node.is_loop()) line.erase(0, line.find(' ') + 1);
    out += margin + line + '\n';
    if (!node.is_loop()) continue;
    print_nodes(node.body, indent + 2, program, out);
    out += margin + "}\n";
  }
}

std::string describe(const Unit& unit, size_t tile_bytes, const isa::Program& program) {
  isa::Program shown;
  shown.buffers = program.buffers;
  shown.buffers.emplace_back().name = "tiles";
  shown.scalars = program.scalars;
  shown.kernels = program.kernels;
  std::string out = fmt::format("stage {}, core {}, {} bytes of tiles: ", unit.stage, unit.core, tile_bytes);
  std::span<const Node> nodes = unit.nodes;
  if (!unit.parallel) {
    out += "one group\n";
    print_nodes(nodes, 2, shown, out);
    return out;
  }
  const Node& loop = nodes.back();
  out += fmt::format("i{} < {} shared out\n", loop.instruction.reg, loop.instruction.count);
  if (nodes.size() > 1) {
    out += "  before each group\n";
    print_nodes(nodes.first(nodes.size() - 1), 4, shown, out);
    out += "  each iteration\n";
  }
  print_nodes(loop.body, nodes.size() > 1 ? 4 : 2, shown, out);
  return out;
}

// A program's units, decoded, and the groups of each stage: unit, number within it.
struct PlanBuilder {
  std::vector<std::unique_ptr<Ready>> units;
  std::vector<std::vector<std::pair<int, int>>> stages;

  // Throws host::Unplannable. `text`: describes what is made.
  void plan(const isa::Program& program, std::string* text = nullptr) {
    const std::vector<int> roots = host::alias_roots(program);
    std::vector<Unit> all;
    std::vector<int> wide;  // stages of each phase
    size_t phases = 0;
    std::vector<host::CoreCode> codes;
    for (size_t core = 0; core < program.cores.size(); ++core) {
      host::CoreCode code = host::tree_of(program, static_cast<int>(core));
      const host::Uses uses = host::uses_of(code.nodes, program, roots, code.tiles.size());
      host::check_tiles(code, uses, program.cores[core]);
      for (const host::Use& use : uses.all) {
        // The last element in a place counts, and not every instruction goes through its elements in their order.
        if (use.writes && !host::elements_apart(*use.pattern)) throw host::Unplannable{"an instruction writes a place twice"};
        if (use.on_chip() && use.reads && !host::reads_what_was_written(uses, use))
          throw host::Unplannable{"an operand reads bytes that were not written"};
      }
      size_t barriers = 0;
      for (const Node& node : code.nodes) barriers += node.instruction.opcode == isa::Opcode::barrier;
      if (core > 0 && barriers + 1 != phases) throw host::Unplannable{"cores with different numbers of barriers"};
      phases = barriers + 1;
      wide.resize(phases, 0);
      for (Unit& unit : host::units_of(program, static_cast<int>(core), code, uses)) {
        wide[static_cast<size_t>(unit.phase)] = std::max(wide[static_cast<size_t>(unit.phase)], unit.stage + 1);
        all.push_back(std::move(unit));
      }
      codes.push_back(std::move(code));
    }
    for (Unit& unit : all) {
      for (int p = 0; p < unit.phase; ++p) unit.stage += wide[static_cast<size_t>(p)];
      host::CoreCode& code = codes[static_cast<size_t>(unit.core)];
      host::forward_copies(unit.nodes, program, roots, code.tiles.size());
      if (multiplies(unit.nodes)) {
        host::join_accumulations(unit.nodes, program, roots, code.tiles.size());
        host::forward_stores(unit.nodes, program, roots, code.tiles.size());
        host::join_rows(unit.nodes, program, roots, code.tiles.size());
      }
      if (unit.nodes.empty()) continue;
      const double cost = cost_ns(unit.nodes.back(), program);
      int registers = code.loop_registers;
      const std::vector<host::Place> places = host::strip_mine(unit.nodes, program, roots, code.tiles, registers, unit.parallel);
      auto ready = std::make_unique<Ready>();
      ready->core = unit.core;
      ready->stage = unit.stage;
      ready->loop_registers = registers;
      const host::Layout layout = host::lay_out(unit.nodes, program, roots, places);
      ready->arena = layout.bytes;
      if (text) *text += describe(unit, layout.bytes, program);
      if (unit.parallel) {
        const isa::Instruction& loop = unit.nodes.back().instruction;
        ready->reg = loop.reg;
        ready->count = loop.count;
        const double each = cost / static_cast<double>(loop.count);
        ready->chunk = std::clamp<int64_t>(static_cast<int64_t>(kGroupNs / each), 1, (loop.count + 1) / 2);
        ready->groups = static_cast<int>((ready->count + ready->chunk - 1) / ready->chunk);
        host::decode_nodes(std::span(unit.nodes).first(unit.nodes.size() - 1), program, ready->prologue);
        host::decode_nodes(unit.nodes.back().body, program, ready->body);
      } else {
        host::decode_nodes(unit.nodes, program, ready->body);
      }
      if (stages.size() <= static_cast<size_t>(ready->stage)) stages.resize(static_cast<size_t>(ready->stage) + 1);
      for (int g = 0; g < ready->groups; ++g)
        stages[static_cast<size_t>(ready->stage)].emplace_back(static_cast<int>(units.size()), g);
      units.push_back(std::move(ready));
    }
    std::erase_if(stages, [](const auto& groups) { return groups.empty(); });
  }
};

}  // namespace

std::string describe_plan(const isa::Program& program) {
  std::string text;
  try {
    PlanBuilder().plan(program, &text);
  } catch (const host::Unplannable& problem) {
    return "executed as it is written: " + problem.what + "\n";
  } catch (const std::length_error&) {
    return fmt::format("executed as it is written: {}\n", kTooLarge);
  }
  return text;
}

struct Plan::Impl {
  PlanBuilder planned;
  std::unique_ptr<Executable> literal;  // instead: the program as it is written
  std::string reason;                   // why

  // One group per core, or one for all when they meet at barriers.
  void take_literally(std::shared_ptr<const isa::Program> program, const spec::Chip& chip) {
    planned = PlanBuilder();
    literal = std::make_unique<Executable>(std::move(program), chip);
    planned.stages.emplace_back();
    for (int core = 0; core < (literal->cores_communicate() ? 1 : literal->cores()); ++core)
      planned.stages[0].emplace_back(core, 0);
  }
};

Plan::Plan(std::shared_ptr<const isa::Program> program, const spec::Chip& chip)
    : program_(std::move(program)), impl_(std::make_unique<Impl>()) {
  try {
    impl_->planned.plan(*program_);
  } catch (const host::Unplannable& problem) {
    impl_->reason = problem.what;
    impl_->take_literally(program_, chip);
  } catch (const std::length_error&) {  // of a SmallVector
    impl_->reason = kTooLarge;
    impl_->take_literally(program_, chip);
  }
}
Plan::~Plan() = default;

int Plan::stages() const { return static_cast<int>(impl_->planned.stages.size()); }
int Plan::groups(int stage) const { return static_cast<int>(impl_->planned.stages[static_cast<size_t>(stage)].size()); }
const std::string& Plan::literal_reason() const { return impl_->reason; }

bool Plan::run(int stage, int group, std::span<std::byte* const> buffers, const LaunchValues& values, WorkerMemory& memory,
               Fault& fault) const {
  const auto [number, part] = impl_->planned.stages[static_cast<size_t>(stage)][static_cast<size_t>(group)];
  if (impl_->literal) {
    const Executable& executable = *impl_->literal;
    if (!executable.cores_communicate()) return run_core(executable, number, memory.core(number), buffers, values, nullptr, fault);
    std::vector<CoreMemory*> memories;
    for (int core = 0; core < executable.cores(); ++core) memories.push_back(&memory.core(core));
    return exec::run(executable, memories, buffers, values, fault);
  }
  const Ready& unit = *impl_->planned.units[static_cast<size_t>(number)];
  // Tiles are operands in one more buffer.
  std::byte* inline_buffers[kInlineBuffers];
  std::unique_ptr<std::byte*[]> many;
  std::byte** all = inline_buffers;
  if (buffers.size() + 1 > kInlineBuffers) {
    many = std::make_unique<std::byte*[]>(buffers.size() + 1);
    all = many.get();
  }
  std::ranges::copy(buffers, all);
  all[buffers.size()] = memory.arena(unit.arena);
  int64_t inline_loops[kInlineBuffers];
  std::unique_ptr<int64_t[]> many_loops;
  int64_t* loops = inline_loops;
  if (static_cast<size_t>(unit.loop_registers) > kInlineBuffers) {
    many_loops = std::make_unique<int64_t[]>(static_cast<size_t>(unit.loop_registers));
    loops = many_loops.get();
  }
  std::fill_n(loops, unit.loop_registers, 0);
  Frame frame;
  frame.registers = {loops, nullptr, nullptr, nullptr, all};
  frame.scalars = values.data();
  frame.scratch = &thread_scratch();
  int failed = -1;
  bool ok = run_steps(unit.prologue, frame, loops, failed);
  if (ok && unit.reg < 0) {
    ok = run_steps(unit.body, frame, loops, failed);
  } else if (ok) {
    const int64_t end = std::min(unit.count, (part + 1) * unit.chunk);
    for (int64_t i = part * unit.chunk; ok && i < end; ++i) {
      loops[unit.reg] = i;
      ok = run_steps(unit.body, frame, loops, failed);
    }
  }
  if (ok) return true;
  fault.message = frame.fault;
  fault.core = unit.core;
  fault.instruction = failed;
  if (failed >= 0)
    fault.origin = program_->cores[static_cast<size_t>(unit.core)].code[static_cast<size_t>(failed)].origin;
  return false;
}

}  // namespace opentrn::exec
