// The proof walks only a few iterations of each loop. Here its verdict is compared with that of the same program with
// all loops written out, for programs whose buffering, tokens and addresses vary, right and wrong ones.
#include <fstream>
#include <random>
#include <sstream>

#include <fmt/format.h>

#include "isa/mutate.h"
#include "machine.h"

namespace opentrn::isa {
namespace {

Program load(const std::string& path) {
  std::ifstream in(std::string(OPENTRN_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << in.rdbuf();
  return parse(text.str());
}

void substitute(AccessPattern& ap, const std::vector<int64_t>& registers) {
  for (const Term& term : ap.terms) ap.offset += term.bytes * registers[term.reg];
  ap.terms.clear();
}

// The code from `begin` on, loops written out, up to the end of the enclosing loop. Returns the index behind it.
size_t write_out(const std::vector<Instruction>& code, size_t begin, std::vector<int64_t>& registers,
                 std::vector<Instruction>& out) {
  size_t k = begin;
  for (; k < code.size() && code[k].opcode != Opcode::loop_end; ++k) {
    if (code[k].opcode == Opcode::loop_begin) {
      size_t end = k;
      for (int64_t n = 0; n < code[k].count; ++n) {
        registers[code[k].reg] = n;
        end = write_out(code, k + 1, registers, out);
      }
      k = end;
      continue;
    }
    Instruction i = code[k];
    substitute(i.dst, registers);
    for (AccessPattern& src : i.src) substitute(src, registers);
    out.push_back(i);
  }
  return k;
}

Program without_loops(const Program& program) {
  Program p = program;
  for (CoreProgram& core : p.cores) {
    std::vector<int64_t> registers(core.loop_registers);
    std::vector<Instruction> code;
    write_out(core.code, 0, registers, code);
    core.code = code;
  }
  return p;
}

bool sound(const Program& p) { return check(p, trn2()).empty(); }

// Counts verdicts so that a test can see that it met both kinds.
struct Verdicts {
  int sound = 0, unsound = 0;
  void compare(const Program& p, const std::string& what) {
    const bool cut = isa::sound(p), full = isa::sound(without_loops(p));
    ++(full ? sound : unsound);
    EXPECT_EQ(cut, full) << what << "\ncut:\n" << findings(p) << "\nfull:\n" << findings(without_loops(p)) << print(p);
  }
};

TEST(Loops, MutatedPrograms) {
  Verdicts verdicts;
  for (const char* path : {"tests/text/scaled_add.trn", "tests/text/matmul.trn"}) {
    const Program original = load(path);
    verdicts.compare(original, path);
    for (size_t k = 0; k < mutation_count(original); ++k) {
      Program p = original;
      const std::string what = mutate(p, k);
      verdicts.compare(p, what);
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(verdicts.sound, 20);
  EXPECT_GT(verdicts.unsound, 100);
}

// A pipeline in place: tile i is loaded from block i + a, computed, and stored to block i + b of the same memory.
TEST(Loops, PipelinesInPlace) {
  std::mt19937 random(17);
  auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Verdicts verdicts;
  for (int round = 0; round < 600; ++round) {
    const int trip = pick(1, 24), depth = pick(1, 4), credits = pick(0, 3) ? depth : pick(1, 5);
    const int load = pick(0, 1) ? 8 : pick(0, 16), store = pick(0, 1) ? 8 : pick(0, 16);
    const int step_load = pick(0, 3) ? 1 : pick(-1, 2), step_store = pick(0, 3) ? 1 : pick(-1, 2);
    const std::string text = fmt::format(R"(program p chip=trn2
buffer x input bytes=163840
buffer y output bytes=163840 alias=x
core {{
  pool t sbuf bytes=64 depth={1}
  semaphore ready
  semaphore done
  semaphore free initial={2}
  loop i0 < {0} {{
    rotate t0 = t
    sync.q0 dma_copy f32 t[t0] [0:16] [1,16] <- f32 x+{3}+i0*{5} [0:16 step 16] [1,16] wait free>=1 post ready+1
    scalar activation.exp f32 t[t0] [0:16] [1,16] <- f32 t[t0] [0:16] [1,16] wait ready>=1 post done+1
    gpsimd.q{7} dma_copy f32 y+{4}+i0*{6} [0:16 step 16] [1,16] <- f32 t[t0] [0:16] [1,16] wait done>=1 post free+1
  }}
}}
)",
                                         trip, depth, credits, (load + 32) * 1024, (store + 32) * 1024,
                                         step_load * 1024, step_store * 1024, 1);
    verdicts.compare(parse(text), fmt::format("round {}", round));
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(verdicts.sound, 50);
  EXPECT_GT(verdicts.unsound, 50);
}

// Two nested loops that fill a resident tile in pieces, and a loop that reads it piece by piece in some order.
TEST(Loops, ProducersAndConsumers) {
  std::mt19937 random(23);
  auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Verdicts verdicts;
  for (int round = 0; round < 600; ++round) {
    const int trip = pick(2, 40), outer = pick(1, 4), depth = pick(1, 3), credits = pick(0, 4) ? depth : depth + 1;
    const bool reversed = pick(0, 3) == 0, at_once = pick(0, 2) == 0;
    const int ahead = pick(0, 3) ? 0 : pick(1, 3), wait = pick(0, 5) ? trip : trip - 1;
    const int readable = trip - ahead;
    if (readable < 1) continue;
    std::string text = fmt::format(R"(program p chip=trn2
buffer x input bytes=65536
core {{
  pool t sbuf bytes=2048 depth={}
  pool r sbuf offset=16384 bytes=64 depth=1
  semaphore ready
  semaphore free initial={}
  rotate t1 = r
  loop i0 < {} {{
    rotate t0 = t
    sync event_semaphore wait free>=1
    loop i1 < {} {{
      sync.q0 dma_copy f32 t[t0]+i1*32 [0:16] [1,8] <- f32 x+i1*512 [0:16 step 8] [1,8] post ready+1
    }}
)",
                                   depth, credits, outer, trip);
    if (at_once) text += fmt::format("    vector event_semaphore wait ready>={}\n", wait);
    text += fmt::format(
        "    loop i1 < {} {{\n      vector tensor_copy f32 r[t1] [0:16] [1,8] <- f32 t[t0]+{}+i1*{} [0:16] [1,8]{}\n   "
        " }}\n",
        readable, reversed ? 32 * (trip - 1) : 32 * ahead, reversed ? -32 : 32, at_once ? "" : " wait ready>=1");
    if (at_once ? wait < trip : readable < trip)
      text += fmt::format("    vector event_semaphore wait ready>={}\n", at_once ? trip - wait : trip - readable);
    text += "    vector event_semaphore post free+1\n  }\n}\n";
    verdicts.compare(parse(text), fmt::format("round {}", round));
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(verdicts.sound, 50);
  EXPECT_GT(verdicts.unsound, 50);
}

}  // namespace
}  // namespace opentrn::isa
