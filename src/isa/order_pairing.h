// Whether the waits on a semaphore can be sure of the posts that program order pairs them with, when several engines or
// queues post it or wait on it. Part of the order proof (verify_order.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "isa/order_history.h"

namespace opentrn::isa {

// One executed post: `clock` after it, in `lane`; `weight` iterations are represented by it.
struct PostEvent {
  Clock clock;
  int64_t count = 1, weight = 1;
  int lane = 0, instruction = 0;
};

// One executed wait: `clock` of its engine after it, the posts whose tokens it took.
struct WaitEvent {
  Clock clock;
  int64_t count = 1, weight = 1;
  int lane = 0, instruction = 0;
  bool ranged = false;  // inside an iteration that stands for many
  std::vector<int> consumed;
};

struct Pairing {
  std::vector<PostEvent> posts;
  std::vector<WaitEvent> waits;

  // A wait, and a post it took a token of, that may not have happened when the wait is over. A post has certainly
  // happened when all the tokens that could be there without it are fewer than those taken so far.
  struct Pair {
    int wait, post;  // instructions
  };
  std::optional<Pair> find_uncertain(int64_t initial) const;
};

}  // namespace opentrn::isa
