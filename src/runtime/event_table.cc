#include "runtime/event_table.h"

#include "base/error.h"

namespace opentrn::runtime {
namespace {

constexpr uint32_t kMaxSlots = 1u << 24;

}  // namespace

EventId EventTable::add(const Event& event) {
  uint32_t slot = 0;
  if (unused_.empty()) {
    slot = static_cast<uint32_t>(slots_.size());
    if (slot == kMaxSlots) throw UserError("too many live events on one device: release events that are not needed");
    slots_.emplace_back();
  } else {
    slot = unused_.back();
    unused_.pop_back();
  }
  Slot& s = slots_[slot];
  s.event = event;
  s.live = true;
  ++s.generation;
  return static_cast<EventId>(device_ + 1) << 56 | static_cast<EventId>(slot) << 32 | s.generation;
}

const Event* EventTable::find(EventId id) const {
  const size_t slot = (id >> 32) & (kMaxSlots - 1);
  if (device_of(id) != device_ || slot >= slots_.size()) return nullptr;
  const Slot& s = slots_[slot];
  return s.live && s.generation == static_cast<uint32_t>(id) ? &s.event : nullptr;
}

void EventTable::release(EventId id) {
  if (!find(id)) return;
  const size_t slot = (id >> 32) & (kMaxSlots - 1);
  slots_[slot].live = false;
  unused_.push_back(static_cast<uint32_t>(slot));
}

}  // namespace opentrn::runtime
