#include "isa/order_pairing.h"

namespace opentrn::isa {

std::optional<Pairing::Pair> Pairing::find_uncertain(int64_t initial) const {
  auto before = [](int lane, uint32_t time, const Clock& clock) { return clock.time[lane] >= time; };
  for (const WaitEvent& w : waits) {
    if (w.consumed.empty()) continue;
    const uint32_t wait_time = w.clock.time[w.lane];
    // What has certainly been taken when this wait is over. An iteration that stands for many is compared with single
    // iterations around it, one that is walked with all that the others represent.
    int64_t taken = 0;
    for (const WaitEvent& v : waits)
      if (before(v.lane, v.clock.time[v.lane], w.clock)) taken += v.count * (w.ranged ? 1 : v.weight);
    for (int post : w.consumed) {
      const PostEvent& p = posts[post];
      const uint32_t post_time = p.clock.time[p.lane];
      int64_t without = initial;
      for (const PostEvent& q : posts)
        if (!before(p.lane, post_time, q.clock) && !before(w.lane, wait_time, q.clock))
          without += q.count * (w.ranged ? 1 : q.weight);
      if (without >= taken) return Pair{w.instruction, p.instruction};
    }
  }
  return std::nullopt;
}

}  // namespace opentrn::isa
