// The program cache: kernels in memory, least recently used out first, with the disk behind them.
#include <chrono>
#include <cstdlib>
#include <future>
#include <list>
#include <mutex>
#include <unordered_map>

#include <fmt/format.h>

#include "base/error.h"
#include "compiler/compile.h"
#include "isa/verify.h"
#include "runtime/cache.h"
#include "runtime/device.h"
#include "runtime/disk_cache.h"
#include "runtime/fork.h"
#include "runtime/kernel.h"
#include "runtime/kernel_key.h"
#include "runtime/retirement.h"
#include "runtime/settings.h"

namespace opentrn::runtime {
namespace {

using KernelPointer = std::shared_ptr<const Kernel>;

struct KeyHash {
  size_t operator()(const Key& key) const { return static_cast<size_t>(key.low); }
};

class Cache {
 public:
  // `make` returns a kernel without id and key; it runs at most once per key at a time, without the lock.
  template <typename Make>
  KernelPointer get(const Key& key, Make make) {
    std::promise<KernelPointer> promise;
    {
      std::unique_lock lock(mutex_);
      if (auto found = kernels_.find(key); found != kernels_.end()) {
        ++stats_.memory_hits;
        order_.splice(order_.begin(), order_, found->second.position);
        return found->second.kernel;
      }
      if (auto found = pending_.find(key); found != pending_.end()) {
        std::shared_future<KernelPointer> future = found->second;
        lock.unlock();
        KernelPointer kernel = future.get();
        lock.lock();
        ++stats_.memory_hits;
        return kernel;
      }
      pending_.emplace(key, promise.get_future().share());
    }
    try {
      std::shared_ptr<Kernel> made = make();
      std::lock_guard lock(mutex_);
      made->key = key.hex();
      made->id = static_cast<int32_t>(by_id_.size());
      KernelPointer kernel = std::move(made);
      by_id_.push_back(kernel);
      order_.push_front(key);
      kernels_.emplace(key, Entry{kernel, order_.begin()});
      pending_.erase(key);
      stats_.plans += kernel->plan != nullptr;
      stats_.plan_ms += kernel->plan_ms;
      if (kernel->source == Kernel::Source::compiled) {
        ++stats_.compiled;
        stats_.compile_ms += kernel->compile_ms;
      }
      while (static_cast<int64_t>(kernels_.size()) > settings().memory_programs) evict(order_.back());
      collect();
      promise.set_value(kernel);
      return kernel;
    } catch (...) {
      std::lock_guard lock(mutex_);
      pending_.erase(key);
      promise.set_exception(std::current_exception());
      throw;
    }
  }

  // The disk cache of the current settings, nullptr if there is none.
  DiskCache* disk() {
    std::lock_guard lock(mutex_);
    const Settings& s = settings();
    if (!s.disk_cache) return nullptr;
    if (!disk_) disk_ = std::make_unique<DiskCache>(s.cache_dir, s.cache_max_bytes);
    return disk_.get();
  }

  KernelPointer by_id(int32_t id) {
    std::lock_guard lock(mutex_);
    if (id < 0 || id >= static_cast<int32_t>(by_id_.size())) return nullptr;
    return by_id_[static_cast<size_t>(id)].lock();
  }

  int32_t count() {
    std::lock_guard lock(mutex_);
    return static_cast<int32_t>(by_id_.size());
  }

  void count_check(const Kernel& kernel, bool equal) {
    const Kernel::Check result = equal ? Kernel::Check::equal : Kernel::Check::unequal;
    const Kernel::Check before = kernel.check.load(std::memory_order_relaxed);
    if (before == result || before == Kernel::Check::unequal) return;
    std::lock_guard lock(mutex_);
    kernel.check.store(result, std::memory_order_relaxed);
    stats_.plans_checked += before == Kernel::Check::none;
    stats_.plans_unequal += !equal;
  }

  CacheStats stats() {
    std::lock_guard lock(mutex_);
    CacheStats stats = stats_;
    if (disk_) {
      const DiskStats disk = disk_->stats();
      stats.disk_hits += disk.hits;
      stats.disk_writes += disk.writes;
      stats.disk_rejected += disk.rejected;
      stats.disk_evicted += disk.evicted;
    }
    return stats;
  }

  void clear_memory() {
    std::lock_guard lock(mutex_);
    while (!order_.empty()) evict(order_.back(), /*count=*/false);
    collect();
  }

  // No device exists: nothing can refer to a kernel by a plain pointer.
  void reset() {
    std::lock_guard lock(mutex_);
    order_.clear();
    kernels_.clear();
    retirement_ = Retirement();
    disk_.reset();
    stats_ = CacheStats();
  }

 private:
  struct Entry {
    KernelPointer kernel;
    std::list<Key>::iterator position;
  };

  void evict(const Key& key, bool count = true) {
    auto found = kernels_.find(key);
    retirement_.add(std::move(found->second.kernel));
    order_.erase(found->second.position);
    kernels_.erase(found);
    if (count) ++stats_.evicted;
  }

  // Launches that were recorded name their kernels by id, so these stay while there is a recording.
  void collect() {
    if (recording() == Recording::off) retirement_.collect();
  }

  std::mutex mutex_;
  std::list<Key> order_;  // most recently used first
  std::unordered_map<Key, Entry, KeyHash> kernels_;
  std::unordered_map<Key, std::shared_future<KernelPointer>, KeyHash> pending_;
  std::vector<std::weak_ptr<const Kernel>> by_id_;
  Retirement retirement_;
  std::unique_ptr<DiskCache> disk_;
  CacheStats stats_;
};

// Never destroyed: workers may still run launches while the process exits.
Cache& cache() {
  static Cache& value = *[] {
    watch_forks();
    std::atexit(flush_cache);  // programs compiled last are worth keeping, too
    return new Cache;
  }();
  return value;
}

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::shared_ptr<const Kernel> kernel_for(const graph::Graph& graph) {
  require_not_forked();
  const Key key = key_of(graph);
  return cache().get(key, [&] {
    DiskCache* disk = cache().disk();
    if (disk) {
      if (std::optional<DiskEntry> entry = disk->load(key)) {
        std::shared_ptr<Kernel> kernel = make_kernel(std::move(entry->program), &entry->time);
        kernel->source = Kernel::Source::disk;
        return kernel;
      }
    }
    const auto start = std::chrono::steady_clock::now();
    const Settings& s = settings();
    compiler::Options options;
    options.lnc = s.lnc;
    std::shared_ptr<Kernel> kernel = make_kernel(compiler::compile(graph, spec::chip(s.chip), options));
    if (kernel->name.empty()) kernel->name = graph.name;
    kernel->compile_ms = ms_since(start) - kernel->plan_ms;
    if (disk) disk->store(key, {kernel->program, kernel->time});
    return kernel;
  });
}

std::shared_ptr<const Kernel> kernel_for(std::shared_ptr<const isa::Program> program) {
  require_not_forked();
  const Settings& s = settings();
  if (program->chip != s.chip)
    throw UserError(fmt::format("program {} is written for {}, this process models {}; set OPENTRN_CHIP={}",
                                program->name, program->chip, s.chip, program->chip));
  if (static_cast<int>(program->cores.size()) > s.lnc)
    throw UserError(fmt::format("program {} uses {} cores, a logical core has {} here; set NEURON_LOGICAL_NC_CONFIG={}",
                                program->name, program->cores.size(), s.lnc, program->cores.size()));
  return cache().get(key_of(*program), [&] {
    const auto start = std::chrono::steady_clock::now();
    isa::verify(*program, spec::chip(s.chip));
    std::shared_ptr<Kernel> kernel = make_kernel(program);
    kernel->compile_ms = ms_since(start) - kernel->plan_ms;
    return kernel;
  });
}

std::shared_ptr<const Kernel> kernel_by_id(int32_t id) { return cache().by_id(id); }
int32_t kernel_count() { return cache().count(); }
CacheStats cache_stats() { return cache().stats(); }
void count_check(const Kernel& kernel, bool equal) { cache().count_check(kernel, equal); }

void clear_cache(bool disk) {
  require_not_forked();
  cache().clear_memory();
  if (!disk) return;
  if (DiskCache* d = cache().disk()) d->clear();
}

void flush_cache() {
  if (in_forked_child()) return;
  if (DiskCache* disk = cache().disk()) disk->flush();
}

void reset_cache() { cache().reset(); }

}  // namespace opentrn::runtime
