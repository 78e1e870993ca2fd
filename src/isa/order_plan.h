// One core's code prepared for the order walk: loops with the number of iterations that have to be walked, lanes,
// operands as byte sets. Part of the order proof (verify_order.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "isa/order_history.h"
#include "isa/program.h"

namespace opentrn::isa {

struct PlannedLoop {
  int begin = 0, end = 0;       // indices of loop_begin and loop_end
  int16_t reg = 0;
  int64_t trip = 1;
  int64_t walk = 1;             // iterations walked; the last `ranged` stand for all that remain when walk < trip
  int ranged = 1;               // 2 if some memory is accessed at different strides, so that distances vary
  bool has_barrier = false;
  std::vector<std::pair<int16_t, int64_t>> net;  // semaphore and what one iteration adds to it, where not zero
};

struct PlannedStep {
  int engine_lane = -1;         // global numbers; -1 for sequencer control
  int lane = -1;                // where it completes: its queue for a transfer, else its engine
  int loop = -1;                // loop_begin, loop_end: index into loops
  int first_access = 0, accesses = 0;
};

struct OrderPlan {
  std::vector<PlannedLoop> loops;
  std::vector<PlannedStep> steps;            // one per instruction
  std::vector<Access> accesses;
  std::vector<int> last_use;                 // per pool: last instruction that may touch it, loops included
  std::vector<int> posters, waiters;         // per semaphore: its only lane, -1 none, -2 several
  int64_t barriers = 0;                      // executed, trip counts multiplied
  int lanes[kEngines + kMaxQueues];          // local lane -> global lane, -1 when unused
};

// `roots[b]`: the buffer all aliases of buffer b lead to. Lanes are numbered from `next_lane` on.
// Returns false when the loops' token counts do not fit 64 bits.
bool plan_order(const Program& program, int core, const std::vector<int>& roots, int& next_lane, OrderPlan& plan);

// Loops that contain barriers must be walked equally often in all cores.
void align_barriers(std::vector<OrderPlan>& plans);

}  // namespace opentrn::isa
