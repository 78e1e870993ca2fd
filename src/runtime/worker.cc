#include "runtime/worker.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>

#include <fmt/format.h>

#include "runtime/kernel.h"

namespace opentrn::runtime {
namespace {

// Below this the hand-over to a second thread costs more than it saves.
constexpr int64_t kParallelBytes = 64 << 10;      // HBM traffic of a launch
constexpr int64_t kParallelFlops = 4'000'000;     // of its matrix multiplications
constexpr int64_t kParallelCopyBytes = 1 << 20;

// Signals are for the threads of the program, except those that an instruction of this thread raises itself.
std::thread start_thread(const std::string& name, auto body) {
  sigset_t all, previous;
  sigfillset(&all);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, fault);
  pthread_sigmask(SIG_BLOCK, &all, &previous);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  pthread_setname_np(thread.native_handle(), name.c_str());
  return thread;
}

// Ends a thread that has announced its end; leaves one that does not come to an end to the process's exit.
void join_or_leave(std::thread& thread, const std::atomic<bool>& ended, std::chrono::steady_clock::time_point deadline) {
  if (!thread.joinable()) return;
  while (!ended.load(std::memory_order_acquire) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  if (ended.load(std::memory_order_acquire)) thread.join();
  else thread.detach();
}

// Runs one core and reports what it throws as a fault, so that the other core and later work go on.
bool run_guarded(const exec::Executable& executable, int core, exec::CoreMemory& memory,
                 std::span<std::byte* const> buffers, std::span<const exec::ScalarValue> scalars,
                 exec::Rendezvous& rendezvous, exec::Fault& fault) {
  bool ok = false;
  try {
    ok = exec::run_core(executable, core, memory, buffers, scalars, &rendezvous, fault);
  } catch (const std::exception& error) {
    fault.message = error.what();
    fault.core = core;
  }
  if (!ok) rendezvous.abandon();
  return ok;
}

}  // namespace

// One job at a time, handed over by the worker.
class Worker::Helper {
 public:
  explicit Helper(const std::string& name) {
    thread_ = start_thread(name, [this] { run(); });
  }

  ~Helper() {
    end();
    if (thread_.joinable()) thread_.join();
  }

  struct CoreJob {
    const exec::Executable* executable = nullptr;
    int core = 0;
    exec::CoreMemory* memory = nullptr;
    std::span<std::byte* const> buffers;
    std::span<const exec::ScalarValue> scalars;
    exec::Rendezvous* rendezvous = nullptr;
    exec::Fault fault;
    bool ok = true;
  };
  struct CopyJob {
    std::byte* destination = nullptr;
    const std::byte* source = nullptr;
    int64_t size = 0;
  };

  void start(CoreJob& job) {
    core_job_ = &job;
    copy_job_ = nullptr;
    post();
  }
  void start(CopyJob& job) {
    core_job_ = nullptr;
    copy_job_ = &job;
    post();
  }
  void wait() { done_bell_.wait(done_, posted_.load(std::memory_order_relaxed)); }

  void end() {
    core_job_ = nullptr;
    copy_job_ = nullptr;
    post();
  }
  void leave(std::chrono::steady_clock::time_point deadline) {
    end();
    join_or_leave(thread_, ended_, deadline);
  }

 private:
  void post() {
    const uint64_t job = posted_.load(std::memory_order_relaxed) + 1;
    posted_.store(job, std::memory_order_seq_cst);
    job_bell_.ring(job);
  }

  void run() {
    for (uint64_t job = 1;; ++job) {
      job_bell_.wait(posted_, job);
      if (core_job_) {
        CoreJob& j = *core_job_;
        j.ok = run_guarded(*j.executable, j.core, *j.memory, j.buffers, j.scalars, *j.rendezvous, j.fault);
      } else if (copy_job_) {
        std::memcpy(copy_job_->destination, copy_job_->source, static_cast<size_t>(copy_job_->size));
      } else {
        ended_.store(true, std::memory_order_release);
        return;
      }
      done_.store(job, std::memory_order_seq_cst);
      done_bell_.ring(job);
    }
  }

  CoreJob* core_job_ = nullptr;
  CopyJob* copy_job_ = nullptr;
  std::atomic<uint64_t> posted_{0}, done_{0};
  std::atomic<bool> ended_{false};
  Doorbell job_bell_, done_bell_;
  std::thread thread_;
};

Worker::Worker(int device, const spec::Chip& chip, int lnc, int threads, const DeviceMemory& memory)
    : device_(device), chip_(chip), memory_(memory), lnc_(lnc) {
  for (int core = 0; core < lnc; ++core) {
    core_memories_.push_back(std::make_unique<exec::CoreMemory>(chip));
    core_memory_pointers_.push_back(core_memories_.back().get());
  }
  if (threads > 1 && lnc > 1) helper_ = std::make_unique<Helper>(fmt::format("neuron{}.1", device));
  thread_ = start_thread(fmt::format("neuron{}.0", device), [this] { run(); });
}

Worker::~Worker() {
  if (!thread_.joinable()) return;
  while (!queue_.reserve(sizeof(Work), WorkKind::stop)) queue_.wait_for_space();
  queue_.notify(queue_.publish());
  thread_.join();
}

void Worker::abandon(int patience_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
  stopping_.store(true, std::memory_order_seq_cst);
  // A worker that sleeps needs a record to wake up; when the ring is full it is awake.
  if (queue_.reserve(sizeof(Work), WorkKind::stop)) queue_.notify(queue_.publish());
  join_or_leave(thread_, ended_, deadline);
  if (helper_ && ended_.load(std::memory_order_acquire)) helper_->leave(deadline);
}

std::optional<Failure> Worker::take_failure(uint64_t ticket) {
  if (!failed_.load(std::memory_order_acquire)) return std::nullopt;
  std::lock_guard lock(failure_mutex_);
  if (!failure_ || failure_->ticket > ticket) return std::nullopt;
  std::optional<Failure> failure = std::move(failure_);
  failure_.reset();
  failed_.store(false, std::memory_order_release);
  return failure;
}

void Worker::fail(const LaunchWork& work, std::string message, int32_t origin) {
  std::lock_guard lock(failure_mutex_);
  if (failure_) {
    ++failure_->further;
    return;
  }
  failure_ = Failure{queue_.ticket(), work.kernel->name, std::move(message), origin, 0};
  failed_.store(true, std::memory_order_release);
}

void Worker::run() {
  while (!stopping_.load(std::memory_order_relaxed)) {
    Work* work = queue_.next();
    if (work->kind == WorkKind::stop) {
      queue_.done();
      break;
    }
    execute(work);
    queue_.done();
  }
  ended_.store(true, std::memory_order_release);
}

void Worker::execute(Work* work) {
  switch (work->kind) {
    case WorkKind::launch:
      launch(*static_cast<LaunchWork*>(work));
      break;
    case WorkKind::stage: {
      auto& stage = *static_cast<StageWork*>(work);
      std::memcpy(stage.destination, stage.data(), static_cast<size_t>(stage.size));
      break;
    }
    case WorkKind::copy: {
      auto& c = *static_cast<CopyWork*>(work);
      copy(c.destination, c.source, c.size);
      break;
    }
    case WorkKind::fill: {
      auto& fill = *static_cast<FillWork*>(work);
      std::memset(fill.destination, fill.value, static_cast<size_t>(fill.size));
      break;
    }
    case WorkKind::call_back: {
      auto& call = *static_cast<CallBackWork*>(work);
      call.function(call.argument);
      break;
    }
    case WorkKind::wait: {
      auto& wait = *static_cast<WaitWork*>(work);
      wait.queue->wait(wait.ticket);
      break;
    }
    case WorkKind::skip:
    case WorkKind::stop:
      break;
  }
}

void Worker::copy(std::byte* destination, const std::byte* source, int64_t size) {
  if (!helper_ || size < kParallelCopyBytes) {
    std::memcpy(destination, source, static_cast<size_t>(size));
    return;
  }
  const int64_t half = size / 2 / 4096 * 4096;
  Helper::CopyJob job{destination + half, source + half, size - half};
  helper_->start(job);
  std::memcpy(destination, source, static_cast<size_t>(half));
  helper_->wait();
}

void Worker::launch(LaunchWork& work) {
  const Kernel& kernel = *work.kernel;
  const exec::Executable& executable = *kernel.executable;
  const isa::Program& program = *kernel.program;

  buffers_.resize(program.buffers.size());
  std::byte* const scratch = work.scratch ? memory_.host(work.scratch) : nullptr;
  void** address = work.addresses();
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const isa::Buffer& buffer = program.buffers[i];
    switch (buffer.kind) {
      case isa::Buffer::Kind::input:
      case isa::Buffer::Kind::output:
        buffers_[i] = *address ? memory_.host(*address) : nullptr;
        ++address;
        break;
      case isa::Buffer::Kind::scratch:
        buffers_[i] = scratch + kernel.scratch_offsets[i];
        break;
      case isa::Buffer::Kind::constant:
        buffers_[i] = const_cast<std::byte*>(buffer.data.data());
        break;
    }
  }
  const std::span<const exec::ScalarValue> scalars(work.values(), work.scalars);

  exec::Fault fault;
  bool ok = false;
  const bool parallel = helper_ && executable.cores() == 2 &&
                        (kernel.hbm_bytes > kParallelBytes || kernel.hardware_flops > kParallelFlops);
  if (parallel) {
    exec::Rendezvous rendezvous(2);
    Helper::CoreJob job{&executable, 1, core_memory_pointers_[1], buffers_, scalars, &rendezvous, {}, true};
    helper_->start(job);
    ok = run_guarded(executable, 0, *core_memory_pointers_[0], buffers_, scalars, rendezvous, fault);
    helper_->wait();
    if (!job.ok && (ok || fault.message.empty())) fault = job.fault;
    ok = ok && job.ok;
  } else {
    try {
      ok = exec::run(executable, std::span(core_memory_pointers_).first(static_cast<size_t>(executable.cores())),
                     buffers_, scalars, fault);
    } catch (const std::exception& error) {
      fault.message = error.what();
    }
  }
  if (!ok) fail(work, fault.message.empty() ? "the program failed" : fault.message, work.origin);
  delete work.owner;
}

}  // namespace opentrn::runtime
