// The discrete-event simulation of one core: five in-order engines, semaphores, DMA queues and DMA engines.
// Conservative: the engine with the earliest next start goes first, so that everything it causes lies in the future.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "cost/decode.h"
#include "cost/timing.h"

namespace opentrn::cost {

// A semaphore: what has arrived, and posts that lie in the future, sorted by time.
class SemaphoreState {
 public:
  struct Token {
    int64_t time_ps = 0;
    int32_t count = 0;
    int32_t event = -1;
  };

  int64_t ripe = 0;
  int64_t last_ps = -1;     // time and event of the post that arrived last
  int32_t last_event = -1;

  void post(int64_t time_ps, int32_t count, int32_t event);
  void ripen(int64_t now) {
    while (head_ != tail_ && ring_[head_ & mask_].time_ps <= now) {
      const Token& t = ring_[head_++ & mask_];
      ripe += t.count;
      last_ps = t.time_ps;
      last_event = t.event;
    }
  }
  // When `count` will have arrived; kNever when posts are missing. Call after ripen.
  int64_t when(int64_t count) const;
  uint32_t pending() const { return tail_ - head_; }
  const Token& pending(uint32_t i) const { return ring_[(head_ + i) & mask_]; }
  void shift(int64_t by) {
    for (uint32_t i = head_; i != tail_; ++i) ring_[i & mask_].time_ps += by;
  }

  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

 private:
  std::vector<Token> ring_ = std::vector<Token>(4);
  uint32_t head_ = 0, tail_ = 0, mask_ = 3;
};

struct EngineState {
  int32_t step = 0;
  int32_t table = -1;          // activation table loaded
  int64_t free_ps = 0;         // the next instruction may be looked at
  int64_t ready_ps = 0;        // the pending instruction could start if its semaphores were there
  int64_t visible_ps = 0;      // everything issued so far is complete
  int64_t busy_end_ps = 0;     // end of the last busy interval
};

// State of one core between events. Copyable; positions are relative to nothing, times absolute.
class Simulator {
 public:
  Simulator(const DecodedCore& core, const CoreParameters& parameters, int core_number, bool skip_ahead,
            Timeline* timeline, int64_t limit);

  // Runs until every engine has finished or stands at a barrier. False: finished. True: at a barrier; when_joined()
  // is when everything before it is complete, and release(time) lets the engines go on.
  bool run();
  int64_t when_joined() const;
  void release(int64_t time_ps);

  const CoreTime& result() const { return totals_.core; }
  int64_t events() const { return totals_.events; }
  int64_t skipped_events() const { return totals_.skipped; }
  // Where each engine stands, for the message about a deadlock.
  std::vector<int> blocked_instructions() const;
  bool deadlocked() const { return deadlocked_; }

 private:
  static constexpr int64_t kNever = SemaphoreState::kNever;
  static constexpr int kMaxDmaEngines = 64;

  // Everything that adds up.
  struct Totals {
    CoreTime core;
    int64_t events = 0, skipped = 0;
  };

  // The state at a loop's back edge, to compare with a later one.
  struct Snapshot {
    bool valid = false;
    int64_t now = 0;
    int64_t iteration = 0;
    std::array<EngineState, isa::kEngines> engines;
    std::vector<int64_t> counters;
    std::vector<int64_t> rest;
    Totals totals;
  };

  template <bool record>
  void simulate();
  template <bool record>
  void execute(int e);
  template <bool record>
  void execute_matmul(int e, const Step& s);
  template <bool record>
  void execute_dma(int e, const Step& s, int32_t trigger);
  void advance(int e);
  void look_ahead(int e);
  template <bool record>
  void post(int e, const Step& s, int64_t time_ps, int32_t event);
  void occupy(int e, int64_t start_ps, int64_t end_ps);
  int32_t record_event(const Step& s, int track, int64_t start_ps, int64_t end_ps, int64_t wait_ps, int64_t visible_ps,
                       int32_t blocked_by, int64_t bytes);
  int32_t blocking_event(int e, const Step& s, int64_t ready_ps, int64_t start_ps) const;

  // Skipping ahead.
  void at_back_edge(int loop);
  template <typename Visit>
  bool visit_rest(Visit&& visit) const;
  void capture(Snapshot& snapshot, int64_t iteration) const;
  bool same_state(const Snapshot& then, int loop, int64_t period) const;
  bool moved(int e, const Snapshot& then) const {
    return totals_.core.engines[static_cast<size_t>(e)].instructions != then.totals.core.engines[static_cast<size_t>(e)].instructions;
  }
  void skip(const Snapshot& then, int loop, int64_t period, int64_t periods);

  const DecodedCore& core_;
  const CoreParameters parameters_;
  const int core_number_;
  const bool skip_ahead_;
  Timeline* const timeline_;
  const int64_t limit_;

  int64_t now_ = 0;
  std::array<int64_t, isa::kEngines> next_;   // start of each engine's pending instruction, kNever if blocked
  std::array<EngineState, isa::kEngines> engines_;
  std::vector<int64_t> counters_;             // [loop * kEngines + engine]
  std::vector<SemaphoreState> semaphores_;
  std::vector<int64_t> done_;                 // completion times that dependent instructions ask for
  std::array<int64_t, kMaxDmaEngines> dma_free_{};  // ascending
  std::array<int64_t, isa::kMaxQueues> queue_free_{};
  int64_t hbm_free_ = 0;
  int64_t dma_busy_end_ = 0;
  int64_t stream_free_ = 0;                   // tensor engine: end of the last matmul's streaming
  int64_t ramp_credit_ = 0;
  bool warm_ = false;
  std::array<int64_t, isa::kEngines> port_until_{};  // vector, gpsimd: holding the shared port
  int64_t last_visible_ = 0;
  Totals totals_;
  int back_edge_ = -1;                        // loop whose leader just took its back edge
  bool deadlocked_ = false;
  std::vector<Snapshot> snapshots_;           // per loop

  // Recording only.
  std::vector<int32_t> done_event_;
  std::array<int32_t, isa::kEngines> last_event_{};
  int32_t dma_event_ = -1, barrier_event_ = -1;
  int64_t barrier_time_ = -1;
};

}  // namespace opentrn::cost
