#include "exec/interpreter.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "exec/executable.h"
#include "exec/launch_values.h"

namespace opentrn::exec {
namespace {

// The state of one core between barriers.
class CoreRun {
 public:
  CoreRun(const Executable& executable, int core, CoreMemory& memory, std::span<std::byte* const> buffers,
          const Value* scalars, Scratch* scratch)
      : executable_(executable), code_(executable.code(core)), core_(core) {
    const size_t loops = static_cast<size_t>(code_.loop_registers), slots = static_cast<size_t>(code_.slot_registers);
    const size_t pools = static_cast<size_t>(code_.pools);
    if (loops > kInline || slots > kInline || pools > kInline) {
      large_.resize(loops + slots + pools);
      loops_ = large_.data();
      slots_ = reinterpret_cast<int32_t*>(loops_ + loops);
      next_ = reinterpret_cast<int32_t*>(loops_ + loops + slots);
    }
    std::fill_n(loops_, loops, 0);
    std::fill_n(slots_, slots, 0);
    std::fill_n(next_, pools, 0);
    frame_.registers = {loops_, slots_, memory.sbuf(), memory.psum(), buffers.data()};
    frame_.scalars = scalars;
    frame_.scratch = scratch;
  }
  CoreRun(const CoreRun&) = delete;
  CoreRun& operator=(const CoreRun&) = delete;

  enum class State { barrier, finished, failed };
  // Runs up to the next barrier, the end or a fault.
  State advance(Fault& fault) {
    const Step* const steps = code_.steps.data();
    const size_t end = code_.steps.size();
    while (at_ < end) {
      const Step& step = steps[at_];
      switch (step.kind) {
        case Step::Kind::execute:
          if (!step.operation->run(frame_)) {
            fault.message = frame_.fault;
            fault.core = core_;
            fault.instruction = step.instruction;
            fault.origin = executable_.program().cores[static_cast<size_t>(core_)].code[static_cast<size_t>(step.instruction)].origin;
            return State::failed;
          }
          ++at_;
          break;
        case Step::Kind::rotate: {
          int32_t& next = next_[step.pool];
          slots_[step.reg] = next;
          next = next + 1 == step.depth ? 0 : next + 1;
          ++at_;
          break;
        }
        case Step::Kind::loop_begin:
          loops_[step.reg] = 0;
          ++at_;
          break;
        case Step::Kind::loop_end:
          if (++loops_[step.reg] < step.count) at_ = static_cast<size_t>(step.target);
          else ++at_;
          break;
        case Step::Kind::barrier:
          ++at_;
          return State::barrier;
      }
    }
    return State::finished;
  }

 private:
  static constexpr size_t kInline = 64;
  const Executable& executable_;
  const Executable::Code& code_;
  const int core_;
  size_t at_ = 0;
  Frame frame_;
  int64_t inline_loops_[kInline];
  int32_t inline_slots_[kInline], inline_next_[kInline];
  std::vector<int64_t> large_;
  int64_t* loops_ = inline_loops_;
  int32_t* slots_ = inline_slots_;
  int32_t* next_ = inline_next_;
};

Scratch& thread_scratch() {
  thread_local const std::unique_ptr<Scratch> scratch = std::make_unique<Scratch>();
  return *scratch;
}

}  // namespace

bool run_core(const Executable& executable, int core, CoreMemory& memory, std::span<std::byte* const> buffers,
              const LaunchValues& values, Rendezvous* rendezvous, Fault& fault) {
  CoreRun run(executable, core, memory, buffers, values.data(), &thread_scratch());
  for (;;) {
    switch (run.advance(fault)) {
      case CoreRun::State::finished: return true;
      case CoreRun::State::failed:
        if (rendezvous) rendezvous->abandon();
        return false;
      case CoreRun::State::barrier:
        if (rendezvous) rendezvous->arrive_and_wait();
    }
  }
}

bool run(const Executable& executable, std::span<CoreMemory* const> memories, std::span<std::byte* const> buffers,
         const LaunchValues& values, Fault& fault) {
  const int cores = executable.cores();
  if (cores == 1) return run_core(executable, 0, *memories[0], buffers, values, nullptr, fault);
  std::vector<std::unique_ptr<CoreRun>> runs;
  for (int c = 0; c < cores; ++c)
    runs.push_back(std::make_unique<CoreRun>(executable, c, *memories[static_cast<size_t>(c)], buffers, values.data(), &thread_scratch()));
  for (;;) {
    bool unfinished = false;
    for (const auto& core : runs) {
      switch (core->advance(fault)) {
        case CoreRun::State::failed: return false;
        case CoreRun::State::barrier: unfinished = true; break;
        case CoreRun::State::finished: break;
      }
    }
    if (!unfinished) return true;
  }
}

bool run_core(const Executable& executable, int core, CoreMemory& memory, std::span<std::byte* const> buffers,
              std::span<const ScalarValue> scalars, Rendezvous* rendezvous, Fault& fault) {
  return run_core(executable, core, memory, buffers, LaunchValues(executable.program(), scalars), rendezvous, fault);
}

bool run(const Executable& executable, std::span<CoreMemory* const> memories, std::span<std::byte* const> buffers,
         std::span<const ScalarValue> scalars, Fault& fault) {
  return run(executable, memories, buffers, LaunchValues(executable.program(), scalars), fault);
}

void Rendezvous::arrive_and_wait() {
  if (abandoned_.load(std::memory_order_acquire)) return;
  const int phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == cores_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_add(1, std::memory_order_acq_rel);
    phase_.notify_all();
    return;
  }
  // The other core is usually close; sleeping costs more than a short spin.
  for (int spin = 0; spin < 2000; ++spin)
    if (phase_.load(std::memory_order_acquire) != phase) return;
  while (phase_.load(std::memory_order_acquire) == phase && !abandoned_.load(std::memory_order_acquire)) phase_.wait(phase);
}

void Rendezvous::abandon() {
  abandoned_.store(true, std::memory_order_release);
  phase_.fetch_add(1, std::memory_order_acq_rel);
  phase_.notify_all();
}

}  // namespace opentrn::exec
