// A program, memory for its buffers, and what came out of running it through its host plan.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "exec/plan.h"
#include "isa/text.h"
#include "isa/verify.h"
#include "run_plan.h"

namespace opentrn::exec {

// trn2 with little on-chip memory, which is quickly cleared.
inline const spec::Chip& small_chip() {
  static const spec::Chip chip = [] {
    spec::Chip c = spec::chip("trn2");
    c.sbuf_bytes_per_partition = 16384;
    return c;
  }();
  return chip;
}
inline constexpr size_t kSmallTiles = size_t{8} << 20;  // more than any plan for it needs

// Instructions of each core one after the other, whatever their engines: a token that each takes and gives back.
inline void put_in_order(isa::Program& program) {
  for (isa::CoreProgram& core : program.cores) {
    const auto token = static_cast<int16_t>(core.semaphores.size());
    core.semaphores.push_back({"order", 1});
    for (isa::Instruction& i : core.code) {
      switch (i.opcode) {
        case isa::Opcode::rotate: case isa::Opcode::loop_begin: case isa::Opcode::loop_end: case isa::Opcode::barrier: continue;
        default: break;
      }
      i.waits.push_back({token, 1});
      i.posts.push_back({token, 1});
    }
  }
}

inline std::string findings_of(const isa::Program& program, const spec::Chip& chip = small_chip()) {
  std::string text;
  for (const isa::Finding& f : isa::check(program, chip)) text += f.message + "\n";
  return text;
}

// Buffers of small numbers: f32 multiples of 1/8, in buffers called "index..." i32 from 0 to 7, in others called "b16..." bf16.
class LaunchMemory {
 public:
  explicit LaunchMemory(const isa::Program& program, uint32_t seed = 1) {
    std::mt19937 random(seed);
    for (const isa::Buffer& b : program.buffers) {
      std::vector<std::byte>& bytes = memory_.emplace_back(static_cast<size_t>(b.bytes));  // not a byte more: sanitizers watch
      if (b.kind == isa::Buffer::Kind::constant) std::ranges::copy(b.data, bytes.begin());
      else fill(b, bytes, random);
    }
    for (size_t b = 0; b < memory_.size(); ++b) {
      size_t root = b;
      while (program.buffers[root].alias >= 0) root = static_cast<size_t>(program.buffers[root].alias);
      buffers.push_back(memory_[root].data());
    }
  }
  std::vector<std::byte*> buffers;

 private:
  static void fill(const isa::Buffer& b, std::vector<std::byte>& bytes, std::mt19937& random) {
    for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
      const float value = static_cast<float>(static_cast<int>(random() % 65) - 32) / 8;
      uint32_t word;
      std::memcpy(&word, &value, 4);
      if (b.name.starts_with("index")) word = random() % 8;
      if (b.name.starts_with("b16")) word = (word & 0xFFFF0000u) | ((word >> 16) ^ 0x8000u);
      std::memcpy(bytes.data() + at, &word, 4);
    }
  }
  std::vector<std::vector<std::byte>> memory_;
};

struct Planned {
  std::string text;  // describe_plan
  PlanRun run;
  bool has(const std::string& part) const { return text.find(part) != std::string::npos; }
  int count(const std::string& part) const {
    int n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  }
};

inline Planned run_program(const std::shared_ptr<const isa::Program>& program, std::span<const ScalarValue> scalars = {}) {
  LaunchMemory memory(*program);
  return {describe_plan(*program), run_plan(program, small_chip(), memory.buffers, scalars, kSmallTiles)};
}

// The program without semaphores; it must be sound when put in order, and the plan must agree with the interpreter.
inline Planned check_plan(const std::string& text, std::span<const ScalarValue> scalars = {}) {
  auto program = std::make_shared<isa::Program>(isa::parse("program p chip=trn2\n" + text));
  put_in_order(*program);
  EXPECT_EQ(findings_of(*program), "");
  Planned planned = run_program(program, scalars);
  EXPECT_EQ(planned.run.difference, "") << planned.text;
  EXPECT_TRUE(planned.run.ok) << planned.run.fault.message;
  return planned;
}

}  // namespace opentrn::exec
