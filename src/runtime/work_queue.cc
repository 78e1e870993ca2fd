#include "runtime/work_queue.h"

#include <new>

#include <fmt/format.h>

#include "base/error.h"

namespace opentrn::runtime {
namespace {

constexpr size_t kAlign = 16;
static_assert(sizeof(Work) == kAlign, "a skip record must fit into the smallest gap at the ring's end");

}  // namespace

WorkQueue::WorkQueue() : ring_(static_cast<std::byte*>(::operator new(kBytes, std::align_val_t(64)))) {}

WorkQueue::~WorkQueue() { ::operator delete(ring_, std::align_val_t(64)); }

Work* WorkQueue::reserve(size_t bytes, WorkKind kind) {
  bytes = (bytes + kAlign - 1) / kAlign * kAlign;
  if (bytes > kMaxRecord)
    throw InternalError(fmt::format("work record of {} bytes, at most {} fit into the queue", bytes, kMaxRecord));
  const uint64_t head = head_.load(std::memory_order_relaxed);
  const uint64_t to_end = kBytes - head % kBytes;
  const uint64_t gap = to_end < bytes ? to_end : 0;  // records do not wrap
  if (head + gap + bytes - known_tail_ > kBytes) {
    known_tail_ = tail_.load(std::memory_order_acquire);
    if (head + gap + bytes - known_tail_ > kBytes) return nullptr;
  }
  if (gap) *at(head) = Work{.bytes = static_cast<uint32_t>(gap), .kind = WorkKind::skip};
  reserved_ = head + gap + bytes;
  Work* work = at(head + gap);
  *work = Work{.bytes = static_cast<uint32_t>(bytes), .kind = kind};
  return work;
}

uint64_t WorkQueue::publish() {
  head_.store(reserved_, std::memory_order_seq_cst);
  return reserved_;
}

Work* WorkQueue::next() {
  while (true) {
    if (position_ == known_head_) {
      known_head_ = head_.load(std::memory_order_acquire);
      if (position_ == known_head_) return nullptr;
    }
    Work* work = at(position_);
    record_bytes_ = work->bytes;
    if (work->kind != WorkKind::skip) return work;
    done();
  }
}

void WorkQueue::done() {
  position_ += record_bytes_;
  record_bytes_ = 0;
  tail_.store(position_, std::memory_order_seq_cst);
}

}  // namespace opentrn::runtime
