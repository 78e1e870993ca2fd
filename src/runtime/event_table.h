// The events of one device: a modelled time and the work that must have run when it is reached.
// An id carries device, slot and generation, so that the id of a released event is never taken for another's.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/device.h"

namespace opentrn::runtime {

struct Event {
  int64_t time_ps = 0;
  uint64_t ticket = 0;
};

// Not thread-safe: the device calls it with its lock held.
class EventTable {
 public:
  explicit EventTable(int device) : device_(device) {}
  EventId add(const Event& event);
  const Event* find(EventId id) const;  // nullptr when it was released
  void release(EventId id);
  static int device_of(EventId id) { return static_cast<int>(id >> 56) - 1; }
  size_t live() const { return slots_.size() - unused_.size(); }

 private:
  struct Slot {
    Event event;
    uint32_t generation = 0;
    bool live = false;
  };
  const int device_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> unused_;
};

}  // namespace opentrn::runtime
