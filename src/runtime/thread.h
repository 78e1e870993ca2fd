// The engine's threads: started apart from the program's signals and floating-point modes.
#pragma once

#include <fenv.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace opentrn::runtime {

// Signals are for the threads of the program, except those that an instruction of the new thread raises itself.
std::thread start_thread(const std::string& name, std::function<void()> body);

// Ends a thread that has announced its end; leaves one that does not come to an end to the process's exit.
void join_or_leave(std::thread& thread, const std::atomic<bool>& ended, std::chrono::steady_clock::time_point deadline);

// Rounding to nearest, denormals kept: results do not depend on what the program has set for its own threads.
class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint() {
    fegetenv(&before_);
    fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPoint() { fesetenv(&before_); }
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

 private:
  fenv_t before_;
};

}  // namespace opentrn::runtime
