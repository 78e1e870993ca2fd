// What the order walk (verify_order.h) knows at its present place: loops, semaphores, slots, buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "isa/order_history.h"
#include "isa/order_pairing.h"

namespace opentrn::isa {

// Tokens of one post, with what the poster knew.
struct Token {
  int64_t count = 0;
  Clock clock;
  int post = -1;  // index into posts of a semaphore with several posters or waiters
};

struct SemaphoreState {
  std::vector<Token> tokens;
  size_t head = 0;
  int64_t total = 0;
  bool broken = false;     // already reported
  bool shared = false;     // several posters or waiters: pairing has to be proved
  Pairing pairing;
};

struct Slot {
  History history;
  Written written;
  uint32_t generation = 0;
};

struct SlotRegister {
  int pool = -1, slot = 0;
  uint32_t generation = 0;
};

struct LoopState {
  int loop = 0;
  int64_t iteration = 0;
  uint32_t entry = 0;
  int64_t weight = 1;  // iterations that the present one stands for
};

struct CoreState {
  size_t pc = 0;
  std::vector<LoopState> loops;
  std::vector<int64_t> value;             // per loop register
  std::vector<Range> range;               // count 1 outside an iteration that stands for many
  std::vector<SemaphoreState> semaphores;
  std::vector<Slot> slots;
  std::vector<int> first_slot;            // per pool
  std::vector<int64_t> rotations;         // per pool
  std::vector<SlotRegister> registers;
  std::vector<int> active;                // pools that may hold data
  std::vector<std::vector<int>> clashes;  // per pool: active pools at overlapping addresses
  struct Trigger {
    int lane = -1;
    uint32_t time = 0;
  } triggers[kMaxQueues];
};

struct BufferState {
  History history;
  Intervals written;
  bool ever_written = false;  // by any instruction of the program
  bool has_contents = false;  // input or constant: readable from the start
};

}  // namespace opentrn::isa
