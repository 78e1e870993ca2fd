// The reference interpreter: executes a program's instructions one after the other on the host.
// Semantics are written once per instruction (exec/semantics*); results are the same bits on every host and SIMD.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "isa/program.h"
#include "spec/chip.h"

namespace opentrn::exec {

// A launch-time scalar; converted to the argument's dtype when the program runs.
struct ScalarValue {
  enum class Kind : uint8_t { real, integer } kind = Kind::real;
  double real = 0;
  int64_t integer = 0;
};

// SBUF and PSUM of one physical core, on the host. Rows are padded so that consecutive partitions do not
// fall into the same cache sets. Reusable for any number of runs; not thread-safe.
class CoreMemory {
 public:
  explicit CoreMemory(const spec::Chip& chip);
  ~CoreMemory();
  CoreMemory(const CoreMemory&) = delete;
  CoreMemory& operator=(const CoreMemory&) = delete;
  std::byte* sbuf() const { return sbuf_; }
  std::byte* psum() const { return psum_; }
  int64_t sbuf_pitch() const { return sbuf_pitch_; }
  int64_t psum_pitch() const { return psum_pitch_; }
  // Fills both memories with NaN patterns (tests: a read before a write shows).
  void poison();

 private:
  std::byte* sbuf_ = nullptr;
  std::byte* psum_ = nullptr;
  int64_t sbuf_pitch_ = 0, psum_pitch_ = 0;
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
};

// A program prepared for execution: addresses resolved, loop nests linked, kernels decoded. Immutable,
// shared by launches.
class Executable {
 public:
  Executable(std::shared_ptr<const isa::Program> program, const spec::Chip& chip);
  ~Executable();
  const isa::Program& program() const { return *program_; }
  int cores() const;
  // True when the cores meet at barriers, so that they have to run at the same time on two threads
  // (or alternate at the barriers on one).
  bool cores_communicate() const;
  struct Code;
  const Code& code(int core) const;

 private:
  std::shared_ptr<const isa::Program> program_;
  std::unique_ptr<Code[]> code_;
};

// Where two cores of one launch meet. `cores` participants; a failed core releases the others.
class Rendezvous {
 public:
  explicit Rendezvous(int cores) : cores_(cores) {}
  void arrive_and_wait();
  void abandon();

 private:
  const int cores_;
  std::atomic<int> arrived_{0};
  std::atomic<int> phase_{0};
  std::atomic<bool> abandoned_{false};
};

// A run-time fault of the user's data: an index out of range. Reported through the stream.
struct Fault {
  std::string message;   // "index 7 is out of bounds for dimension of size 5"
  int core = 0;
  int instruction = -1;
  int32_t origin = -1;
};

// Runs one core of a launch. `buffers[i]` is the host address of Program::buffers[i] (constants included),
// `scalars` the values of Program::scalars. Returns true, or false with `fault` filled; memory stays valid.
bool run_core(const Executable& executable, int core, CoreMemory& memory, std::span<std::byte* const> buffers,
              std::span<const ScalarValue> scalars, Rendezvous* rendezvous, Fault& fault);

// Runs all cores on the calling thread, alternating at barriers.
bool run(const Executable& executable, std::span<CoreMemory* const> memories, std::span<std::byte* const> buffers,
         std::span<const ScalarValue> scalars, Fault& fault);
// Both with the scalars already converted.
class LaunchValues;
bool run_core(const Executable& executable, int core, CoreMemory& memory, std::span<std::byte* const> buffers,
              const LaunchValues& values, Rendezvous* rendezvous, Fault& fault);
bool run(const Executable& executable, std::span<CoreMemory* const> memories, std::span<std::byte* const> buffers,
         const LaunchValues& values, Fault& fault);

// Name of the SIMD target in use ("AVX3", "AVX2", "SSE4", "NEON", ...). OPENTRN_SIMD=<name> limits it.
std::string simd_target();

}  // namespace opentrn::exec
