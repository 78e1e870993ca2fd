#include "runtime/engine.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "runtime/kernel.h"
#include "runtime/thread.h"

namespace opentrn::runtime {
namespace {

constexpr int64_t kPartBytes = 256 << 10;  // of a copy or fill that several threads share
constexpr int64_t kParallelCopyBytes = 4 * kPartBytes;

// Parts of a copy, or of a fill when there is no source.
class CopyTask final : public GroupTask {
 public:
  CopyTask(std::byte* destination, const std::byte* source, int value, int64_t size)
      : destination_(destination), source_(source), value_(value), size_(size) {}
  int groups() const { return size_ < kParallelCopyBytes ? 1 : static_cast<int>((size_ - 1) / part() + 1); }
  void run(int group, BorrowedMemory&) noexcept override {
    const int64_t begin = group * part();
    const auto bytes = static_cast<size_t>(std::min(part(), size_ - begin));
    if (source_)
      std::memcpy(destination_ + begin, source_ + begin, bytes);
    else
      std::memset(destination_ + begin, value_, bytes);
  }

 private:
  // At most some thousand parts, so that their number fits.
  int64_t part() const {
    return size_ < kParallelCopyBytes ? size_ : std::max(kPartBytes, size_ / 4096 / kPartBytes * kPartBytes);
  }
  std::byte* destination_;
  const std::byte* source_;
  int value_;
  int64_t size_;
};

}  // namespace

Engine::Engine(int device, const spec::Chip& chip, int threads, HostPlan host_plan, const DeviceMemory& memory)
    : device_(device), memories_(chip), launch_(chip, memory, host_plan), threads_(threads) {
  std::lock_guard lock(workers_mutex_);
  start_workers();
}

Engine::~Engine() {
  wait(queue_.submitted());
  stopping_.store(true, std::memory_order_seq_cst);
  bell_.ring(Bell::kWorkers | Bell::kParked);
  for (auto& worker : workers_)
    if (worker->thread.joinable()) worker->thread.join();
}

void Engine::start_workers() {
  while (static_cast<int>(workers_.size()) < workers()) {
    const int index = static_cast<int>(workers_.size());
    Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
    worker.thread =
        start_thread(fmt::format("neuron{}.{}", device_, index), [this, index, &worker] { work(index, worker); });
  }
}

void Engine::set_threads(int threads) {
  std::lock_guard lock(workers_mutex_);
  threads_.store(threads, std::memory_order_seq_cst);
  start_workers();
  bell_.ring(Bell::kWorkers | Bell::kParked);
}

void Engine::abandon(int patience_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
  stopping_.store(true, std::memory_order_seq_cst);
  bell_.ring(Bell::kWorkers | Bell::kHosts | Bell::kParked);
  // Who leads for ever keeps hosts from executing.
  while (!try_lead() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  std::lock_guard lock(workers_mutex_);
  for (auto& worker : workers_) join_or_leave(worker->thread, worker->ended, deadline);
}

// ---- waiting and helping -------------------------------------------------------------------------
void Engine::wait(uint64_t ticket) {
  if (done(ticket)) return;
  const DefaultFloatingPoint floating_point;
  BorrowedMemory memory(memories_);
  while (!done(ticket) && !stopping()) {
    if (try_lead()) {
      lead(ticket, memory);
      stop_leading();
      if (leaderless()) bell_.ring(Bell::kWorkers, 1);
      continue;
    }
    if (help(memory)) continue;
    const auto ready = [&] { return done(ticket) || can_help() || leaderless() || stopping(); };
    if (Bell::spin(Bell::spin_time(), ready)) continue;
    bell_.sleep(Bell::kHosts, [&] {
      // Published anew each time, because who wakes sleepers takes it back.
      uint64_t wanted = wanted_.load(std::memory_order_seq_cst);
      while (ticket < wanted && !wanted_.compare_exchange_weak(wanted, ticket, std::memory_order_seq_cst)) {
      }
      return ready();
    });
  }
}

void Engine::wait_for_space() {
  const uint64_t submitted = queue_.submitted();
  if (submitted > WorkQueue::kBytes / 2) wait(submitted - WorkQueue::kBytes / 2);
}

void Engine::work(int index, Worker& self) {
  const DefaultFloatingPoint floating_point;
  BorrowedMemory memory(memories_);
  while (!stopping()) {
    if (index >= workers()) {
      bell_.ring(Bell::kWorkers, 1);  // whoever woke this thread meant one that works
      bell_.sleep(Bell::kParked, [&] { return index < workers() || stopping(); });
      continue;
    }
    if (try_lead()) {
      // A leader that finds nothing stays for a moment: nobody has to be woken for what comes then.
      do lead(UINT64_MAX, memory);
      while (Bell::spin(Bell::spin_time(), [&] { return pending() || stopping(); }) && !stopping());
      stop_leading();
    } else {
      help(memory);
      if (Bell::spin(Bell::spin_time(), [&] { return can_help() || leaderless() || stopping(); })) continue;
    }
    bell_.sleep(Bell::kWorkers, [&] {
      waking_.store(false, std::memory_order_seq_cst);  // before it looks: what is published later wakes again
      return can_help() || leaderless() || stopping() || index >= workers();
    });
  }
  self.ended.store(true, std::memory_order_release);
}

bool Engine::help(BorrowedMemory& memory) {
  if (!groups_.open()) return false;
  bool helped = false;
  if (helpers_.fetch_add(1, std::memory_order_seq_cst) < threads_.load(std::memory_order_relaxed) - 1)
    helped = groups_.help(memory);
  helpers_.fetch_sub(1, std::memory_order_seq_cst);
  return helped;
}

// ---- leading -------------------------------------------------------------------------------------
void Engine::lead(uint64_t ticket, BorrowedMemory& memory) {
  while (!stopping() && !done(ticket)) {
    Work* work = queue_.next();
    if (!work) return;
    execute(work, memory);
    queue_.done();
    if (done(wanted_.load(std::memory_order_seq_cst))) {
      wanted_.store(UINT64_MAX, std::memory_order_seq_cst);
      bell_.ring(Bell::kHosts);
    }
  }
}

void Engine::run_groups(GroupTask& task, int groups, BorrowedMemory& memory) {
  const int helpers = std::min(threads_.load(std::memory_order_relaxed), groups) - 1;
  if (helpers < 1) {
    for (int group = 0; group < groups; ++group) task.run(group, memory);
    return;
  }
  groups_.run(task, groups, memory, [&] { bell_.ring(Bell::kWorkers | Bell::kHosts, helpers); });
}

void Engine::execute(Work* work, BorrowedMemory& memory) {
  switch (work->kind) {
    case WorkKind::launch: {
      auto& launch = *static_cast<LaunchWork*>(work);
      std::string failure =
          launch_.execute(launch, memory, [&](GroupTask& task, int groups) { run_groups(task, groups, memory); });
      if (!failure.empty()) fail(launch, std::move(failure));
      delete launch.owner;
      break;
    }
    case WorkKind::stage: {
      auto& stage = *static_cast<StageWork*>(work);
      std::memcpy(stage.destination, stage.data(), static_cast<size_t>(stage.size));
      break;
    }
    case WorkKind::copy: {
      auto& copy = *static_cast<CopyWork*>(work);
      CopyTask task(copy.destination, copy.source, 0, copy.size);
      run_groups(task, task.groups(), memory);
      break;
    }
    case WorkKind::fill: {
      auto& fill = *static_cast<FillWork*>(work);
      CopyTask task(fill.destination, nullptr, fill.value, fill.size);
      run_groups(task, task.groups(), memory);
      break;
    }
    case WorkKind::call_back: {
      auto& call = *static_cast<CallBackWork*>(work);
      call.function(call.argument);
      break;
    }
    case WorkKind::wait: {
      auto& wait = *static_cast<WaitWork*>(work);
      wait.engine->wait(wait.ticket);
      break;
    }
    case WorkKind::skip: break;
  }
}

// ---- failures ------------------------------------------------------------------------------------
void Engine::fail(const LaunchWork& work, std::string message) {
  std::lock_guard lock(failure_mutex_);
  if (failure_) {
    ++failure_->further;
    return;
  }
  failure_ = Failure{queue_.ticket(), work.kernel->name, std::move(message), work.origin, 0};
  failed_.store(true, std::memory_order_release);
}

std::optional<Failure> Engine::take_failure(uint64_t ticket) {
  if (!failed_.load(std::memory_order_acquire)) return std::nullopt;
  std::lock_guard lock(failure_mutex_);
  if (!failure_ || failure_->ticket > ticket) return std::nullopt;
  std::optional<Failure> failure = std::move(failure_);
  failure_.reset();
  failed_.store(false, std::memory_order_release);
  return failure;
}

}  // namespace opentrn::runtime
