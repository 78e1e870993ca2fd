#include "runtime/thread.h"

#include <pthread.h>
#include <signal.h>

namespace opentrn::runtime {

std::thread start_thread(const std::string& name, std::function<void()> body) {
  sigset_t all, previous;
  sigfillset(&all);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, fault);
  pthread_sigmask(SIG_BLOCK, &all, &previous);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  pthread_setname_np(thread.native_handle(), name.c_str());
  return thread;
}

void join_or_leave(std::thread& thread, const std::atomic<bool>& ended,
                   std::chrono::steady_clock::time_point deadline) {
  if (!thread.joinable()) return;
  while (!ended.load(std::memory_order_acquire) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  if (ended.load(std::memory_order_acquire))
    thread.join();
  else
    thread.detach();
}

}  // namespace opentrn::runtime
