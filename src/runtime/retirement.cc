#include "runtime/retirement.h"

#include "runtime/kernel.h"

namespace opentrn::runtime {

void Retirement::collect() {
  std::vector<uint64_t> submitted;
  for (Retired& retired : kernels_) {
    if (retired.unreachable) continue;
    // A weak reference from the table of ids can revive it, but only under the cache's lock, which is held here; a
    // revived kernel counts two.
    if (retired.kernel.use_count() != 1) continue;
    // Releasing a second reference synchronises with the release of the last other one, so that the launches made
    // through it are visible from here on.
    std::shared_ptr<const Kernel>(retired.kernel).reset();
    if (submitted.empty()) submitted = submitted_tickets();
    retired.tickets = submitted;
    retired.unreachable = true;
  }
  std::erase_if(kernels_, [](Retired& retired) {
    if (!retired.unreachable) return false;
    if (retired.kernel.use_count() != 1) {
      retired.unreachable = false;
      return false;
    }
    return all_done(retired.tickets);
  });
}

}  // namespace opentrn::runtime
