#include "isa/text.h"

#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include "base/error.h"
#include "isa/names.h"
#include "isa/serialize.h"
#include "machine.h"

namespace opentrn::isa {
namespace {

std::string file(const std::string& path) {
  std::ifstream in(std::string(OPENTRN_SOURCE_DIR) + "/" + path);
  EXPECT_TRUE(in) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// The text without its comments, as print would give it.
std::string without_comments(const std::string& text) {
  std::stringstream in(text), out;
  for (std::string line; std::getline(in, line);)
    if (line.empty() || line[0] != '#') out << line << '\n';
  return out.str();
}

std::string error_of(const std::string& text) {
  try {
    parse(text);
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, PrintGivesTheTextBack) {
  const std::string text = file(GetParam());
  EXPECT_EQ(print(parse(text)), without_comments(text));
}
TEST_P(Golden, Verifies) { EXPECT_EQ(findings(file(GetParam())), ""); }

INSTANTIATE_TEST_SUITE_P(Text, Golden, testing::Values("tests/text/scaled_add.trn", "tests/text/matmul.trn"));

// The fenced blocks of a Markdown file.
std::vector<std::string> blocks(const std::string& markdown) {
  std::vector<std::string> found;
  bool inside = false;
  std::stringstream in(markdown);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("```", 0) == 0) {
      inside = !inside;
      if (inside) found.emplace_back();
    } else if (inside) {
      found.back() += line + "\n";
    }
  }
  return found;
}

TEST(Text, TheDocumentsExamplesAreRight) {
  const std::vector<std::string> examples = blocks(file("docs/program-text.md"));
  ASSERT_EQ(examples.size(), 3u);  // the program, the grammar, a kernel
  EXPECT_EQ(examples[0], file("tests/text/scaled_add.trn"));
  EXPECT_EQ(print(parse("program p chip=trn2\n" + examples[2])), "program p chip=trn2\n" + examples[2]);
}

TEST(Text, OneInstruction) {
  const Program p = parse(file("tests/text/scaled_add.trn"));
  EXPECT_EQ(print(p.cores[0].code[5], p.cores[0], p),
            "vector scalar_tensor_tensor.mult.add f32 b_tile[t1] [0:128] [1,512] <- f32 a_tile[t0] [0:128] [1,512], "
            "f32 b_tile[t1] [0:128] [1,512] s0=$alpha wait a_ready>=1, b_ready>=1 post a_free+1, done+1");
  const Instruction& i = p.cores[0].code[3];
  EXPECT_EQ(i.opcode, Opcode::dma_copy);
  EXPECT_EQ(i.engine, Engine::sync);
  EXPECT_EQ(i.queue, 0);
  EXPECT_EQ(i.src[0].partition_stride, 512);
  EXPECT_EQ(i.src[0].terms[0], (Term{0, 262144}));
}

TEST(Text, LinesMayBreakAfterCommasAndArrows) {
  const Program p = parse(R"(program p chip=trn2
buffer x input bytes=4   # a comment
core {
  pool tile sbuf offset=0 bytes=4 depth=1
  rotate t0 = tile
  sync.q0 dma_copy f32 tile[t0] [0:1] <-
      f32 x
}
)");
  EXPECT_EQ(p.cores[0].code.size(), 2u);
}

TEST(Text, NamesThatAreNoWordsAreQuotedAndEqualNamesAreNumbered) {
  Program p;
  p.name = "jit \"f\"\n";
  p.buffers.push_back({Buffer::Kind::input, "1 a", 16, -1, {}});
  p.buffers.push_back({Buffer::Kind::output, "y", 16, -1, {}});
  p.buffers.push_back({Buffer::Kind::output, "y", 16, 1, {}});
  Instruction i;
  i.opcode = Opcode::dma_copy;
  i.queue = 3;
  i.dst.memory = Memory::hbm;
  i.dst.buffer = 2;
  i.src.push_back(i.dst);
  i.src[0].buffer = 0;
  p.cores.emplace_back().code.push_back(i);
  EXPECT_EQ(print(p), R"(program "jit \"f\"\x0a" chip=trn2
buffer "1 a" input bytes=16
buffer y output bytes=16
buffer y output bytes=16 alias=%1
core 0 {
  sync.q3 dma_copy f32 %2 <- f32 "1 a"
}
)");
  EXPECT_EQ(digest(parse(print(p))), digest(p));
}

TEST(Text, Constants) {
  const char* text = R"(program p chip=trn2
buffer w constant bytes=36 data {
  00010203 04050607 08090a0b 0c0d0e0f 10111213 14151617 18191a1b 1c1d1e1f
  2021ffab
}
)";
  const Program p = parse(text);
  ASSERT_EQ(p.buffers[0].data.size(), 36u);
  EXPECT_EQ(p.buffers[0].data[35], std::byte{0xab});
  EXPECT_EQ(print(p), text);
}

TEST(Text, RegisterPrograms) {
  const char* text = R"(program p chip=trn2
scalar eps f64
kernel norm {
  prologue {
    r0 = constant.f64 0.1
    r9 = argument.f64 $eps
    r5 = constant.i64 -9223372036854775808
  }
  body {
    r1 = load.f64 0
    r2 = index.i64
    r3 = convert.f64 r2.i64
    r4 = fma.f64 r1, r3, r9
    r6 = bitcast.u64 r4.f64
    store.f64 1, r4
  }
}
)";
  EXPECT_EQ(print(parse(text)), text);
}

// ---- round trips over everything an instruction can hold
class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  Program program() {
    Program p;
    p.name = pick(0, 3) ? "p" : "with space";
    p.model_flops = pick(0, 1) ? 0 : integer();
    for (int n = pick(1, 4); n > 0; --n) {
      Buffer b{static_cast<Buffer::Kind>(pick(0, 3)), "b" + std::to_string(pick(0, 3)), pick(0, 1 << 20), -1, {}};
      if (!p.buffers.empty() && pick(0, 2) == 0) b.alias = pick(0, static_cast<int>(p.buffers.size()) - 1);
      if (b.kind == Buffer::Kind::constant)
        for (int k = pick(0, 40); k > 0; --k) b.data.push_back(static_cast<std::byte>(pick(0, 255)));
      p.buffers.push_back(b);
    }
    p.scalars = {{"s", DType::f32}, {"s2", DType::i64}};
    GpsimdKernel kernel;
    kernel.name = "k";
    for (auto* code : {&kernel.prologue, &kernel.body, &kernel.epilogue})
      for (int n = pick(0, 6); n > 0; --n) code->push_back(kernel_instruction());
    p.kernels.push_back(kernel);
    for (int n = pick(1, 2); n > 0; --n) p.cores.push_back(core(p));
    return p;
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  int64_t integer() {
    if (pick(0, 1)) return pick(-9, 9);
    return static_cast<int64_t>(static_cast<uint64_t>(random_()) << 32 | random_()) / 2;
  }
  double real() {
    constexpr double kValues[] = {0.0, -0.0, 1, -2.5, 0.1, 1e-300, -3e38, HUGE_VAL, -HUGE_VAL, 4e-324, 123456789.0};
    return kValues[pick(0, 10)];
  }
  template <typename E>
  E enumeration(E last) {
    return static_cast<E>(pick(0, static_cast<int>(last)));
  }
  DType dtype() { return enumeration(DType::c128); }

  KernelInstruction kernel_instruction() {
    KernelInstruction k;
    k.op = enumeration(KernelOp::bitcast);
    k.type = enumeration(KernelType::f64);
    const bool real_type = k.type == KernelType::f32 || k.type == KernelType::f64;
    if (k.op == KernelOp::store) {
      k.a = static_cast<uint8_t>(pick(0, 3));
      k.b = static_cast<uint8_t>(pick(0, 63));
      return k;
    }
    k.dst = static_cast<uint8_t>(pick(0, 63));
    if (k.op == KernelOp::load) k.a = static_cast<uint8_t>(pick(0, 3));
    if (k.op == KernelOp::argument) k.imm_int = pick(0, 1);
    if (k.op == KernelOp::constant) real_type ? (void)(k.imm = real()) : (void)(k.imm_int = integer());
    uint8_t* const registers[] = {&k.a, &k.b, &k.c};
    for (int n = 0; n < register_operands(k.op); ++n) *registers[n] = static_cast<uint8_t>(pick(0, 63));
    if (k.op == KernelOp::convert || k.op == KernelOp::bitcast) k.from = enumeration(KernelType::f64);
    return k;
  }

  AccessPattern pattern(const Program& p, const CoreProgram& c) {
    AccessPattern ap;
    ap.dtype = dtype();
    if (pick(0, 1)) {
      ap.memory = Memory::hbm;
      ap.buffer = static_cast<int16_t>(pick(0, static_cast<int>(p.buffers.size()) - 1));
      ap.partition_stride = pick(0, 1) ? 0 : integer();
    } else {
      ap.buffer = static_cast<int16_t>(pick(0, static_cast<int>(c.pools.size()) - 1));
      ap.memory = c.pools[ap.buffer].memory;
      ap.slot = static_cast<int16_t>(pick(-1, 5));
      ap.partition = static_cast<int16_t>(pick(0, 3) * 32);
    }
    ap.partitions = static_cast<int16_t>(pick(1, 128));
    ap.offset = pick(0, 1) ? 0 : integer();
    for (int n = pick(0, 4); n > 0; --n) ap.dims.push_back({integer(), pick(1, 1000)});
    for (int n = pick(0, 6); n > 0; --n) ap.terms.push_back({static_cast<int16_t>(pick(0, 5)), integer()});
    return ap;
  }

  Scalar scalar(const Program& p, const CoreProgram& c) {
    switch (pick(0, 4)) {
      case 0: return Scalar::imm(real());
      case 1: return Scalar::arg(pick(0, 1));
      case 2: return Scalar::of(pattern(p, c));
      default: return {};
    }
  }

  Instruction instruction(const Program& p, const CoreProgram& c) {
    Instruction i;
    do i.opcode = enumeration(Opcode::barrier);
    while (i.opcode == Opcode::loop_begin || i.opcode == Opcode::loop_end);
    if (pick(0, 1)) i.origin = pick(0, 1000);
    if (i.opcode == Opcode::barrier) return i;
    if (i.opcode == Opcode::rotate) {
      i.reg = static_cast<int16_t>(pick(0, 5));
      i.pool = static_cast<int16_t>(pick(0, static_cast<int>(c.pools.size()) - 1));
      return i;
    }
    i.engine = enumeration(Engine::sync);
    if (pick(0, 1)) i.queue = static_cast<int8_t>(pick(0, 15));
    i.op0 = enumeration(AluOp::bypass);
    i.op1 = enumeration(AluOp::bypass);
    if (i.opcode == Opcode::activation || pick(0, 9) == 0) i.act = enumeration(ActFn::erfc);
    for (bool* b : {&i.reverse0, &i.reverse1, &i.accumulate, &i.negate, &i.skip_out_of_bounds}) *b = pick(0, 4) == 0;
    i.axes = static_cast<int8_t>(pick(1, 4));
    if (pick(0, 3) == 0) i.kernel = 0;
    if (pick(0, 3) == 0) i.rows = integer();
    if (pick(0, 3) == 0) i.row_bytes = integer();
    if (pick(0, 3) == 0) i.channel_multiplier = integer();
    for (int n = pick(0, 4); n > 0; --n) i.pattern.push_back({integer(), pick(0, 9)});
    for (int n = pick(0, 4); n > 0; --n) i.pattern_terms.push_back({static_cast<int16_t>(pick(0, 5)), integer()});
    i.s0 = scalar(p, c);
    i.s1 = scalar(p, c);
    if (pick(0, 3)) i.dst = pattern(p, c);
    if (pick(0, 3) == 0) i.dst1 = pattern(p, c);
    for (int n = pick(0, 3); n > 0; --n) i.src.push_back(pick(0, 9) ? pattern(p, c) : AccessPattern{});
    for (auto* signals : {&i.waits, &i.posts})
      for (int n = pick(0, 8); n > 0; --n) signals->push_back({static_cast<int16_t>(pick(0, 2)), pick(1, 70000)});
    return i;
  }

  CoreProgram core(const Program& p) {
    CoreProgram c;
    c.pools = {{"x", Memory::sbuf, 0, 64, 2}, {"y.1", Memory::psum, 0, 2048, 8}, {"x", Memory::sbuf, 256, 64, 1}};
    c.semaphores = {{"ready", 0}, {"free", 2}, {"ready", 1}};
    c.loop_registers = static_cast<int16_t>(pick(0, 9));
    c.slot_registers = static_cast<int16_t>(pick(0, 9));
    int depth = 0;
    for (int n = pick(0, 12); n > 0; --n) {
      if (pick(0, 4) == 0) {
        Instruction loop;
        loop.opcode = Opcode::loop_begin;
        loop.reg = static_cast<int16_t>(depth++);
        loop.count = integer();
        c.code.push_back(loop);
      } else if (depth > 0 && pick(0, 3) == 0) {
        end_loop(c, depth);
      } else {
        c.code.push_back(instruction(p, c));
      }
    }
    while (depth > 0) end_loop(c, depth);
    return c;
  }
  void end_loop(CoreProgram& c, int& depth) {
    Instruction end;
    end.opcode = Opcode::loop_end;
    --depth;
    if (pick(0, 1)) end.reg = static_cast<int16_t>(depth);
    c.code.push_back(end);
  }

  std::mt19937 random_;
};

TEST(Text, EveryFieldSurvivesTheRoundTrip) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const Program p = Generator(seed).program();
    const std::string text = print(p);
    Program again;
    ASSERT_NO_THROW(again = parse(text)) << text;
    ASSERT_EQ(print(again), text);
    // An operand that is absent has no other fields; everything else is the same to the last bit.
    ASSERT_EQ(serialize(again), serialize(p)) << text;
  }
}

TEST(Text, SerialisedFormGivesTheProgramBack) {
  for (uint32_t seed = 1000; seed < 1400; ++seed) {
    const Program p = Generator(seed).program();
    const Program again = deserialize(serialize(p));
    ASSERT_EQ(print(again), print(p));
    ASSERT_EQ(digest(again), digest(p));
  }
}

// ---- errors: line, column, what was expected and what was found
TEST(TextErrors, SayWhatWasExpectedWhere) {
  const std::string head =
      "program p chip=trn2\nbuffer x input bytes=64\ncore {\n  pool t sbuf bytes=64 depth=1\n"
      "  semaphore s\n  rotate t0 = t\n";
  EXPECT_EQ(error_of(""), "line 1, column 1: expected 'program', found the end of the text");
  EXPECT_EQ(error_of("program p chip=trn2\nbufer x"),
            "line 2, column 1: expected 'buffer', 'scalar', 'kernel' or 'core', found 'bufer'");
  EXPECT_EQ(error_of("program p\nbuffer x inout bytes=4"),
            "line 2, column 10: expected input, output, scratch or constant, found 'inout'");
  EXPECT_EQ(error_of(head + "  vektor memset f32 t[t0] [0:1]\n}"),
            "line 7, column 3: expected an engine (tensor, vector, scalar, gpsimd, sync), 'loop', 'rotate', 'barrier', "
            "'pool', 'semaphore' or '}', found 'vektor'");
  EXPECT_EQ(error_of(head + "  vector memsett f32 t[t0] [0:1]\n}"),
            "line 7, column 10: expected an opcode, found 'memsett'");
  EXPECT_EQ(error_of(head + "  vector memset f23 t[t0] [0:1]\n}"),
            "line 7, column 17: expected an attribute, 'wait', 'post' or the end of the line, found 'f23'");
  EXPECT_EQ(error_of(head + "  vector memset f32 u[t0] [0:1]\n}"),
            "line 7, column 21: no pool named 'u' is declared above");
  EXPECT_EQ(error_of(head + "  vector memset f32 t [0:1]\n}"),
            "line 7, column 23: 't' is a pool: write the slot register in brackets, such as t[t0]");
  EXPECT_EQ(error_of(head + "  vector memset f32 t[t0] [1,4]\n}"),
            "line 7, column 27: expected the partition range of an on-chip operand, such as [0:128], found '['");
  EXPECT_EQ(error_of(head + "  vector memset f32 t[t0] [0:1] [1,4,2]\n}"),
            "line 7, column 37: expected ']', found ','");
  EXPECT_EQ(error_of(head + "  vector memset f32 t[t0] [0:1] value=one\n}"),
            "line 7, column 39: expected a number, $scalar or an operand, found 'one'");
  EXPECT_EQ(error_of(head + "  vector memset f32 t[t0] [0:1] scale=1\n}"),
            "line 7, column 33: expected an attribute of memset, found 'scale'");
  EXPECT_EQ(error_of(head + "  vector memset f32 t[t0] [0:1] wait q>=1\n}"),
            "line 7, column 38: no semaphore named 'q' is declared above");
  EXPECT_EQ(error_of(head + "  vector memset f32 t[t0] [0:1] post s=1\n}"),
            "line 7, column 39: expected '+' and a count, found '='");
  EXPECT_EQ(error_of(head + "  loop i0 < 4 {\n"),
            "line 8, column 1: expected '}' that closes the loop, found the end of the text");
  EXPECT_EQ(error_of(head + "  loop i0 < 99999999999999999999 {\n"),
            "line 7, column 13: 99999999999999999999 is out of range for a trip count (-9223372036854775808 to "
            "9223372036854775807)");
  EXPECT_EQ(error_of(head + "  rotate t99999 = t\n}"),
            "line 7, column 10: expected a slot register such as t0, found 't99999'");
  EXPECT_EQ(error_of(head + "  \x01\n}"), "line 7, column 3: unexpected byte 0x01");
  EXPECT_EQ(error_of("program \"p"), "line 1, column 9: this quoted name has no closing quote");
  EXPECT_EQ(error_of("program p\nkernel k {\n body {\n r64 = load.f32 0\n"),
            "line 4, column 2: register r64 does not exist; a kernel has r0 to r63");
}

TEST(TextErrors, DamagedTextNeverCrashes) {
  const std::string text = file("tests/text/matmul.trn");
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = text;
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
      const size_t at = random() % damaged.size();
      if (random() % 2)
        damaged[at] = static_cast<char>(32 + random() % 95);
      else
        damaged.erase(at, 1 + random() % 9);
    }
    try {
      findings(parse(damaged));
    } catch (const UserError&) {
    }
  }
}

}  // namespace
}  // namespace opentrn::isa
