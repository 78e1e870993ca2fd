#include "runtime/fault_handler.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "runtime/device.h"
#include "runtime/memory.h"
#include "runtime/origin.h"

namespace opentrn::runtime {
namespace {

struct sigaction previous;

void print(const char* text) {
  const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
  (void)written;
}

void handle(int number, siginfo_t* info, void*) {
  // The instruction faults again after the return, into the handler that was here before.
  sigaction(number, &previous, nullptr);
  if (info->si_code <= 0) {
    // Sent by kill or raise: no instruction faults again, so deliver it to that handler ourselves.
    raise(number);
    return;
  }
  const int device = device_of(info->si_addr);
  if (device < 0) return;
  char text[256];
  std::snprintf(text, sizeof text,
                "opentrn: host code accessed the memory of neuron:%d at %p, which only the device may; copy the tensor "
                "with .cpu() first\n",
                device, info->si_addr);
  print(text);
  // What follows may need locks or memory that the faulting code holds: it must not turn a crash into a hang.
  signal(SIGALRM, SIG_DFL);
  alarm(3);
  Holder holder;
  if (Device::exists(device) && Device::get(device).memory().try_holder(info->si_addr, holder) && holder.bytes > 0) {
    std::snprintf(text, sizeof text, "opentrn: the tensor has %lld bytes", static_cast<long long>(holder.bytes));
    print(text);
    const std::string where = describe_origin(holder.origin);
    if (!where.empty()) {
      print(" and comes from ");
      print(where.c_str());
    }
    print("\n");
  }
  alarm(0);
}

}  // namespace

void explain_faults() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGSEGV, &action, &previous) == 0;
  }();
  (void)installed;
}

}  // namespace opentrn::runtime
