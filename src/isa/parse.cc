#include <limits>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "base/error.h"
#include "isa/names.h"
#include "isa/text.h"
#include "isa/token_cursor.h"

namespace opentrn::isa {
namespace {

using Kind = Token::Kind;

// Names of a declaration list; a name declared twice can only be referred to by %index.
struct Names {
  std::unordered_map<std::string, int> index;
  int count = 0;
  void declare(const std::string& name) {
    auto [it, fresh] = index.emplace(name, count++);
    if (!fresh) it->second = -1;
  }
};

constexpr int kMaxDeclarations = 32767;  // indices are 16 bits

class Parser : TokenCursor {
 public:
  explicit Parser(std::string_view text) : TokenCursor(text) {}

  Program parse() {
    skip_newlines();
    keyword("program");
    program_.name = name("the program's name");
    while (!at(Kind::newline)) {
      const Token& key = word("'chip=' or 'model_flops='");
      expect("=");
      if (key.text == "chip")
        program_.chip = name("a chip's name");
      else if (key.text == "model_flops")
        program_.model_flops = integer<int64_t>("a number of operations");
      else
        unexpected(key, "'chip=' or 'model_flops='");
    }
    for (skip_newlines(); !at(Kind::end); skip_newlines()) {
      const Token& token = word("'buffer', 'scalar', 'kernel' or 'core'");
      if (token.text == "buffer")
        buffer();
      else if (token.text == "scalar")
        scalar_argument();
      else if (token.text == "kernel")
        kernel();
      else if (token.text == "core")
        core();
      else
        unexpected(token, "'buffer', 'scalar', 'kernel' or 'core'");
    }
    return std::move(program_);
  }

 private:
  int reference(const Names& names, const std::string& what) {
    const Token& token = peek();
    if (accept("%")) {
      const int index = integer<int>("an index");
      if (index < 0 || index >= names.count || index > kMaxDeclarations)
        fail_at(token, fmt::format("there is no {} %{}: {} are declared", what, index, names.count));
      return index;
    }
    const std::string text = name(fmt::format("the name of a {}", what));
    const auto it = names.index.find(text);
    if (it == names.index.end()) fail_at(token, fmt::format("no {} named '{}' is declared above", what, text));
    if (it->second > kMaxDeclarations) fail_at(token, fmt::format("more than {} {}s", kMaxDeclarations + 1, what));
    if (it->second < 0) fail_at(token, fmt::format("two {}s are named '{}'; refer to one as %index", what, text));
    return it->second;
  }

  // ---- declarations
  void buffer() {
    Buffer b;
    b.name = name("the buffer's name");
    const Token& kind = word("input, output, scratch or constant");
    if (kind.text == "input")
      b.kind = Buffer::Kind::input;
    else if (kind.text == "output")
      b.kind = Buffer::Kind::output;
    else if (kind.text == "scratch")
      b.kind = Buffer::Kind::scratch;
    else if (kind.text == "constant")
      b.kind = Buffer::Kind::constant;
    else
      unexpected(kind, "input, output, scratch or constant");
    while (at(Kind::word)) {
      const Token& key = next();
      if (key.text == "bytes") {
        expect("=");
        b.bytes = integer<int64_t>("a number of bytes");
      } else if (key.text == "alias") {
        expect("=");
        b.alias = reference(buffers_, "buffer");
      } else if (key.text == "data") {
        open_block();
        data(b.data);
      } else {
        unexpected(key, "'bytes=', 'alias=' or 'data {'");
      }
    }
    buffers_.declare(b.name);
    program_.buffers.push_back(std::move(b));
    end_of_line("'bytes=', 'alias=', 'data {' or the end of the line");
  }

  void data(std::vector<std::byte>& bytes) {
    auto hex = [](char c) { return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
    while (!accept("}")) {
      const Token& token = next();
      if (token.kind == Kind::newline) continue;
      const bool digits = (token.kind == Kind::word || token.kind == Kind::number) && token.text.size() % 2 == 0 &&
                          token.text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
      if (!digits) unexpected(token, "bytes as pairs of hexadecimal digits, or '}'");
      for (size_t i = 0; i < token.text.size(); i += 2)
        bytes.push_back(static_cast<std::byte>(hex(token.text[i]) * 16 + hex(token.text[i + 1])));
    }
  }

  void scalar_argument() {
    ScalarArgument s;
    s.name = name("the scalar's name");
    s.dtype = dtype("the scalar's dtype");
    scalars_.declare(s.name);
    program_.scalars.push_back(s);
    end_of_line();
  }

  void kernel() {
    GpsimdKernel k;
    k.name = name("the kernel's name");
    open_block();
    while (!accept("}")) {
      const Token& section = word("'prologue', 'body', 'epilogue' or '}'");
      std::vector<KernelInstruction>* code = section.text == "prologue"   ? &k.prologue
                                             : section.text == "body"     ? &k.body
                                             : section.text == "epilogue" ? &k.epilogue
                                                                          : nullptr;
      if (code == nullptr) unexpected(section, "'prologue', 'body', 'epilogue' or '}'");
      open_block();
      while (!accept("}")) {
        code->push_back(kernel_instruction());
        end_of_line();
      }
      skip_newlines();
    }
    kernels_.declare(k.name);
    program_.kernels.push_back(std::move(k));
    end_of_line();
  }

  KernelType kernel_type() {
    expect(".");
    const Token& token = word("i32, u32, i64, u64, f32 or f64");
    const auto type = kernel_type_named(token.text);
    if (!type) unexpected(token, "i32, u32, i64, u64, f32 or f64");
    return *type;
  }

  uint8_t kernel_register() {
    const Token& token = peek();
    const auto value = reg<int>('r', "a register");
    if (value >= kKernelRegisters)
      fail_at(token, fmt::format("register r{} does not exist; a kernel has r0 to r{}", value, kKernelRegisters - 1));
    return static_cast<uint8_t>(value);
  }

  KernelInstruction kernel_instruction() {
    KernelInstruction k;
    if (accept_word("store")) {
      k.op = KernelOp::store;
      k.type = kernel_type();
      k.a = integer<uint8_t>("an operand number");
      expect(",");
      k.b = kernel_register();
      return k;
    }
    k.dst = kernel_register();
    expect("=");
    const Token& token = word("a kernel operation");
    const auto op = kernel_op_named(token.text);
    if (!op || *op == KernelOp::store) unexpected(token, "a kernel operation");
    k.op = *op;
    k.type = kernel_type();
    switch (k.op) {
      case KernelOp::load: k.a = integer<uint8_t>("an operand number"); break;
      case KernelOp::constant:
        if (k.type == KernelType::f32 || k.type == KernelType::f64)
          k.imm = real("a number");
        else
          k.imm_int = integer<int64_t>("an integer");
        break;
      case KernelOp::argument:
        expect("$");
        k.imm_int = reference(scalars_, "scalar");
        break;
      default: {
        uint8_t* const registers[] = {&k.a, &k.b, &k.c};
        for (int i = 0; i < register_operands(k.op); ++i) {
          if (i > 0) expect(",");
          *registers[i] = kernel_register();
        }
        if (k.op == KernelOp::convert || k.op == KernelOp::bitcast) k.from = kernel_type();
      }
    }
    return k;
  }

  // ---- cores
  void core() {
    if (at(Kind::number)) {
      const Token& token = peek();
      if (integer<int>("the core's number") != static_cast<int>(program_.cores.size()))
        unexpected(token, fmt::format("core {}", program_.cores.size()));
    }
    open_block();
    pools_ = {};
    semaphores_ = {};
    core_ = &program_.cores.emplace_back();
    open_loops_.clear();
    bool registers_given = false;
    while (true) {
      const Token& token = peek();
      if (at("}")) {
        if (open_loops_.empty()) break;
        next();
        loop_end();
      } else if (token.kind == Kind::end) {
        unexpected(token, open_loops_.empty() ? "'}' that closes the core" : "'}' that closes the loop");
      } else if (accept_word("pool")) {
        pool();
      } else if (accept_word("semaphore")) {
        semaphore();
      } else if (accept_word("registers")) {
        keyword("loop");
        expect("=");
        core_->loop_registers = integer<int16_t>("a number of loop registers");
        keyword("slot");
        expect("=");
        core_->slot_registers = integer<int16_t>("a number of slot registers");
        registers_given = true;
        end_of_line();
      } else {
        instruction();
      }
    }
    next();
    if (!registers_given) {
      for (const Instruction& i : core_->code) {
        if (i.opcode == Opcode::loop_begin) core_->loop_registers = std::max<int16_t>(core_->loop_registers, i.reg + 1);
        if (i.opcode == Opcode::rotate) core_->slot_registers = std::max<int16_t>(core_->slot_registers, i.reg + 1);
      }
    }
    end_of_line();
  }

  void pool() {
    Pool p;
    p.name = name("the pool's name");
    const Token& memory = word("sbuf or psum");
    if (memory.text == "sbuf")
      p.memory = Memory::sbuf;
    else if (memory.text == "psum")
      p.memory = Memory::psum;
    else
      unexpected(memory, "sbuf or psum");
    while (at(Kind::word)) {
      const Token& key = next();
      expect("=");
      if (key.text == "offset")
        p.offset = integer<int64_t>("a byte offset");
      else if (key.text == "bytes")
        p.bytes = integer<int64_t>("a number of bytes");
      else if (key.text == "depth")
        p.depth = integer<int32_t>("a number of slots");
      else
        unexpected(key, "'offset=', 'bytes=' or 'depth='");
    }
    pools_.declare(p.name);
    core_->pools.push_back(std::move(p));
    end_of_line("'offset=', 'bytes=', 'depth=' or the end of the line");
  }

  void semaphore() {
    Semaphore s;
    s.name = name("the semaphore's name");
    if (accept_word("initial")) {
      expect("=");
      s.initial = integer<int32_t>("a count");
    }
    semaphores_.declare(s.name);
    core_->semaphores.push_back(std::move(s));
    end_of_line("'initial=' or the end of the line");
  }

  void loop_end() {
    Instruction i;
    i.opcode = Opcode::loop_end;
    if (at(Kind::word) && peek().text[0] == 'i' && peek(1).text != "=") i.reg = reg<int16_t>('i', "a loop register");
    attributes(i);
    signals(i);
    open_loops_.pop_back();
    core_->code.push_back(i);
    if (at("}")) return;
    end_of_line();
  }

  void instruction() {
    Instruction i;
    if (accept_word("loop")) {
      i.opcode = Opcode::loop_begin;
      i.reg = reg<int16_t>('i', "a loop register");
      expect("<");
      i.count = integer<int64_t>("a trip count");
      attributes(i);
      signals(i);
      open_block();
      open_loops_.push_back(static_cast<int>(core_->code.size()));
      core_->code.push_back(i);
      return;
    }
    if (accept_word("rotate")) {
      i.opcode = Opcode::rotate;
      i.reg = reg<int16_t>('t', "a slot register");
      expect("=");
      i.pool = static_cast<int16_t>(reference(pools_, "pool"));
    } else if (accept_word("barrier")) {
      i.opcode = Opcode::barrier;
    } else {
      const std::string expected =
          "an engine (tensor, vector, scalar, gpsimd, sync), 'loop', 'rotate', 'barrier', 'pool', 'semaphore' or '}'";
      const Token& token = word(expected);
      const auto engine = engine_named(token.text);
      if (!engine) unexpected(token, expected);
      i.engine = *engine;
      if (accept(".")) i.queue = reg<int8_t>('q', "a queue");
      opcode(i);
      operands(i);
    }
    attributes(i);
    signals(i);
    end_of_line("an attribute, 'wait', 'post' or the end of the line");
    core_->code.push_back(i);
  }

  void opcode(Instruction& i) {
    const Token& token = word("an opcode");
    const auto op = opcode_named(token.text);
    if (!op || (is_sequencer(*op) && *op != Opcode::event_semaphore)) unexpected(token, "an opcode");
    i.opcode = *op;
    if (i.opcode == Opcode::activation) {
      expect(".");
      const Token& act = word("an activation function");
      const auto function = act_fn_named(act.text);
      if (!function) unexpected(act, "an activation function");
      i.act = *function;
    }
    for (AluOp* alu : {&i.op0, &i.op1}) {
      if (!accept(".")) break;
      const Token& name = word("an operation");
      const auto operation = alu_op_named(name.text);
      if (!operation) unexpected(name, "an operation such as add, mult or max");
      *alu = *operation;
    }
  }

  bool at_operand() const { return dtype_named(peek()).has_value() || (at_word("none") && peek(1).text != "="); }

  void operands(Instruction& i) {
    if (!at_operand()) {
      if (at("<-")) unexpected(peek(), "a destination operand ('none' when there is none)");
      return;
    }
    i.dst = operand();
    if (accept(",")) i.dst1 = operand();
    if (!accept("<-")) return;
    do {
      if (i.src.size() == 3) fail_at(peek(), "an instruction has at most three source operands");
      i.src.push_back(operand());
    } while (accept(","));
  }

  AccessPattern operand() {
    AccessPattern ap;
    if (accept_word("none")) return ap;
    ap.dtype = dtype("an operand, which begins with a dtype such as f32");
    if ((at_word("sbuf") || at_word("psum")) && peek(1).text == ":") {
      ap.memory = next().text == "sbuf" ? Memory::sbuf : Memory::psum;
      next();
    }
    // On-chip operands name a pool and, in brackets, a slot register; HBM operands name a buffer.
    const size_t after_name = at("%") ? (peek(1).text == "-" ? 3 : 2) : 1;
    const Token& bracket = peek(after_name);
    const Token& slot = peek(after_name + 1);
    const bool on_chip = bracket.text == "[" && ((slot.kind == Kind::word && slot.text[0] == 't') ||
                                                 (slot.text == "-" && peek(after_name + 2).text == "]"));
    if (on_chip) {
      ap.buffer = static_cast<int16_t>(reference(pools_, "pool"));
      if (ap.memory == Memory::none) ap.memory = core_->pools[ap.buffer].memory;
      expect("[");
      if (!accept("-")) ap.slot = reg<int16_t>('t', "a slot register");
      expect("]");
    } else {
      const Token& token = peek();
      if (token.kind == Kind::word && !buffers_.index.count(std::string(token.text)) &&
          pools_.index.count(std::string(token.text)))
        fail_at(bracket,
                fmt::format("'{0}' is a pool: write the slot register in brackets, such as {0}[t0]", token.text));
      ap.memory = Memory::hbm;
      ap.buffer = static_cast<int16_t>(reference(buffers_, "buffer"));
    }
    address(ap);
    patterns(ap);
    return ap;
  }

  // +256 -4 +i0*4096
  void address(AccessPattern& ap) {
    while (at("+") || at("-")) {
      if (at("+") && peek(1).kind == Kind::word) {
        if (ap.terms.size() == 6) fail_at(peek(), "an address has at most six loop-dependent terms");
        ap.terms.push_back(term());
      } else {
        const Token& sign = peek();
        if (__builtin_add_overflow(ap.offset, integer<int64_t>("a byte offset"), &ap.offset))
          fail_at(sign, "the byte offset is out of range");
      }
    }
  }

  Term term() {
    Term t;
    expect("+");
    t.reg = reg<int16_t>('i', "a loop register");
    expect("*");
    t.bytes = integer<int64_t>("bytes per iteration");
    return t;
  }

  // [0:128 step 1024] [1,512]
  void patterns(AccessPattern& ap) {
    const Token& open = peek();
    bool range = false;
    if (at("[") && (peek(2).text == ":" || (peek(1).text == "-" && peek(3).text == ":"))) {
      range = true;
      next();
      ap.partition = integer<int16_t>("the first partition");
      expect(":");
      const Token& end = peek();
      const int last = integer<int>("the end of the partition range");
      if (last < ap.partition || last - ap.partition > std::numeric_limits<int16_t>::max())
        fail_at(end, fmt::format("partitions [{}:{}] are not a range", ap.partition, last));
      ap.partitions = static_cast<int16_t>(last - ap.partition);
      if (accept_word("step")) ap.partition_stride = integer<int64_t>("elements from one partition to the next");
      expect("]");
    }
    if (!range && ap.memory != Memory::hbm)
      unexpected(open, "the partition range of an on-chip operand, such as [0:128]");
    dims(ap.dims);
  }

  void dims(SmallVector<Dim, 4>& out) {
    while (at("[")) {
      if (out.size() == 4) fail_at(peek(), "at most four free dimensions are possible");
      next();
      Dim d;
      d.stride = integer<int64_t>("a stride in elements");
      expect(",");
      d.count = integer<int32_t>("a count");
      expect("]");
      out.push_back(d);
    }
  }

  Scalar scalar() {
    if (accept("$")) return Scalar::arg(reference(scalars_, "scalar"));
    if (dtype_named(peek())) return Scalar::of(operand());
    return Scalar::imm(real("a number, $scalar or an operand"));
  }

  void attributes(Instruction& i) {
    while (at(Kind::word) && !at_word("wait") && !at_word("post")) {
      const Token& key = next();
      const std::string_view k = key.text;
      if (k == "reverse0")
        i.reverse0 = true;
      else if (k == "reverse1")
        i.reverse1 = true;
      else if (k == "accumulate")
        i.accumulate = true;
      else if (k == "negate")
        i.negate = true;
      else if (k == "skip_out_of_bounds")
        i.skip_out_of_bounds = true;
      else if (at("="))
        valued_attribute(i, key);
      else
        unexpected(key, "an attribute, 'wait', 'post' or the end of the line");
    }
  }

  void valued_attribute(Instruction& i, const Token& key) {
    expect("=");
    const std::string_view k = key.text;
    if (k == "s0" || k == scalar_name(i.opcode, 0))
      i.s0 = scalar();
    else if (k == "s1" || k == scalar_name(i.opcode, 1))
      i.s1 = scalar();
    else if (k == "axes")
      i.axes = integer<int8_t>("a number of axes");
    else if (k == "reg")
      i.reg = integer<int16_t>("a register number");
    else if (k == "pool")
      i.pool = integer<int16_t>("a pool number");
    else if (k == "kernel")
      i.kernel = static_cast<int16_t>(reference(kernels_, "kernel"));
    else if (k == "count")
      i.count = integer<int64_t>("a count");
    else if (k == "rows")
      i.rows = integer<int64_t>("a number of rows");
    else if (k == "row_bytes")
      i.row_bytes = integer<int64_t>("a number of bytes");
    else if (k == "channel_multiplier")
      i.channel_multiplier = integer<int64_t>("an integer");
    else if (k == "origin")
      i.origin = integer<int32_t>("an id");
    else if (k == "pattern")
      dims(i.pattern);
    else if (k == "act") {
      const Token& act = word("an activation function");
      const auto function = act_fn_named(act.text);
      if (!function) unexpected(act, "an activation function");
      i.act = *function;
    } else if (k == "terms") {
      while (at("+")) {
        if (i.pattern_terms.size() == 4) fail_at(peek(), "a pattern has at most four loop-dependent terms");
        i.pattern_terms.push_back(term());
      }
    } else {
      unexpected(key, fmt::format("an attribute of {}", name_of(i.opcode)));
    }
  }

  void signals(Instruction& i) {
    if (accept_word("wait")) {
      do {
        if (i.waits.size() == 8) fail_at(peek(), "an instruction has at most eight waits");
        Signal s;
        s.semaphore = static_cast<int16_t>(reference(semaphores_, "semaphore"));
        expect(">=");
        s.count = integer<int32_t>("a count");
        i.waits.push_back(s);
      } while (accept(","));
    }
    if (accept_word("post")) {
      do {
        if (i.posts.size() == 8) fail_at(peek(), "an instruction has at most eight posts");
        Signal s;
        s.semaphore = static_cast<int16_t>(reference(semaphores_, "semaphore"));
        if (!at("+") && !at("-")) unexpected(peek(), "'+' and a count");
        s.count = integer<int32_t>("a count");
        i.posts.push_back(s);
      } while (accept(","));
    }
  }

  Program program_;
  CoreProgram* core_ = nullptr;
  std::vector<int> open_loops_;
  Names buffers_, scalars_, kernels_, pools_, semaphores_;
};

}  // namespace

Program parse(std::string_view text) { return Parser(text).parse(); }

}  // namespace opentrn::isa
