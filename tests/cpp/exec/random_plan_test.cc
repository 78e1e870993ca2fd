// Random programs: the host plan against the reference interpreter. A difference is cut down and printed as text, which
// is a program by itself. OPENTRN_FUZZ=<n> tries n programs from a new seed.
#include <cstdlib>

#include "isa/verify_operands.h"
#include "isa/verify_structure.h"
#include "random_program.h"

namespace opentrn::exec {
namespace {

std::string difference(const isa::Program& program) {
  const auto shared = std::make_shared<isa::Program>(program);
  LaunchMemory memory(program);
  const ScalarValue alpha{ScalarValue::Kind::real, 0.25, 0};
  return run_plan(shared, small_chip(), memory.buffers, std::span(&alpha, 1), kSmallTiles).difference;
}

bool well_formed(const isa::Program& program) {
  isa::Findings findings;
  isa::check_structure(program, small_chip(), findings);
  if (findings.empty()) isa::check_operands(program, small_chip(), findings);
  return findings.empty();
}

// Drops instructions, then loops, while the difference stays.
isa::Program smallest(isa::Program program) {
  const auto still = [](const isa::Program& p) { return findings_of(p).empty() && !difference(p).empty(); };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t at = 0; at < program.cores[0].code.size(); ++at) {
      isa::Program less = program;
      std::vector<isa::Instruction>& code = less.cores[0].code;
      const auto begin = code.begin() + static_cast<std::ptrdiff_t>(at);
      if (code[at].opcode == isa::Opcode::loop_end) continue;
      if (code[at].opcode == isa::Opcode::loop_begin) {
        size_t end = at;
        for (int depth = 0;; ++end) {
          depth += code[end].opcode == isa::Opcode::loop_begin;
          depth -= code[end].opcode == isa::Opcode::loop_end;
          if (depth == 0) break;
        }
        isa::Program shorter = program;
        shorter.cores[0].code.erase(shorter.cores[0].code.begin() + static_cast<std::ptrdiff_t>(at),
                                    shorter.cores[0].code.begin() + static_cast<std::ptrdiff_t>(end) + 1);
        if (still(shorter)) {
          program = shorter;
          changed = true;
          --at;
          continue;
        }
        code.erase(code.begin() + static_cast<std::ptrdiff_t>(end));
        const int16_t reg = code[at].reg;
        code.erase(code.begin() + static_cast<std::ptrdiff_t>(at));
        const auto forget = [reg](auto& terms) {
          for (size_t t = terms.size(); t-- > 0;)
            if (terms[t].reg == reg) terms.erase(t);
        };
        for (size_t k = at; k + 1 < end; ++k) {
          isa::Instruction& i = code[k];
          forget(i.dst.terms);
          forget(i.dst1.terms);
          forget(i.s0.tile.terms);
          forget(i.s1.tile.terms);
          for (isa::AccessPattern& p : i.src) forget(p.terms);
          forget(i.pattern_terms);
        }
      } else {
        code.erase(begin);
      }
      if (!still(less)) continue;
      program = less;
      changed = true;
      --at;
    }
  }
  return program;
}

TEST(RandomPlan, AgreesWithTheInterpreter) {
  const char* fuzz = std::getenv("OPENTRN_FUZZ");
  const char* start = std::getenv("OPENTRN_FUZZ_SEED");
  const uint32_t first = start ? static_cast<uint32_t>(std::stoul(start)) : fuzz ? std::random_device()() : 1;
  const uint32_t count = fuzz ? static_cast<uint32_t>(std::stoul(fuzz)) : 600;
  uint32_t sound = 0, planned = 0, split = 0;
  for (uint32_t seed = first; seed != first + count; ++seed) {
    const isa::Program program = RandomProgram(seed).make();
    if (!findings_of(program).empty()) {
      // What only its order or its contents speak against may compute anything, but not damage memory.
      if (well_formed(program)) difference(program);
      continue;
    }
    ++sound;
    const std::string text = describe_plan(program);
    planned += !text.starts_with("executed as it is written");
    split += text.find("shared out") != std::string::npos;
    const std::string found = difference(program);
    if (found.empty()) continue;
    const isa::Program less = smallest(program);
    FAIL() << "seed " << seed << ": " << found << "\n" << difference(less) << "\n" << isa::print(less) << "\n" << describe_plan(less);
  }
  if (fuzz) printf("%u programs from seed %u: %u sound, %u planned, %u with loops shared out\n", count, first, sound, planned, split);
  // Most programs must be worth the comparison.
  EXPECT_GT(sound, count / 3);
  EXPECT_GT(planned, count / 4);
}

}  // namespace
}  // namespace opentrn::exec
