#include "runtime/fork.h"

#include <pthread.h>

#include <atomic>

#include "base/error.h"
#include "runtime/device.h"

namespace opentrn::runtime {
namespace {

std::atomic<bool> forked{false};

}  // namespace

void watch_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
  (void)registered;
}

bool in_forked_child() { return forked.load(std::memory_order_relaxed); }

void require_not_forked() {
  if (in_forked_child())
    throw UserError(
        "Cannot re-initialize Neuron runtime in forked subprocess. To use Neuron with multiprocessing, use the 'spawn' "
        "start method");
}

}  // namespace opentrn::runtime
