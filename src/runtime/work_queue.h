// The ring of work of one device: records of variable length, written by host threads in submission order and read
// by the thread that leads the device's engine. A ticket is the position in the ring's byte stream after a record; work
// with a ticket is done when the completed position has reached it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "exec/interpreter.h"

namespace opentrn::runtime {

struct Kernel;

enum class WorkKind : uint16_t { skip, launch, stage, copy, fill, call_back, wait };

// Start of every record; what follows it depends on the kind.
struct Work {
  uint32_t bytes = 0;  // of the record, a multiple of 16
  WorkKind kind = WorkKind::skip;
  uint16_t unused = 0;
  int32_t origin = -1;
  int32_t reserved = 0;
};

struct LaunchWork : Work {
  const Kernel* kernel = nullptr;                  // kept alive by the cache until this launch has run, or by `owner`
  std::shared_ptr<const Kernel>* owner = nullptr;  // of kernels that the cache does not know; the engine deletes it
  std::byte* scratch = nullptr;                    // device address
  uint32_t buffers = 0, scalars = 0;
  // followed by `buffers` device addresses and `scalars` values
  void** addresses() { return reinterpret_cast<void**>(this + 1); }
  exec::ScalarValue* values() { return reinterpret_cast<exec::ScalarValue*>(addresses() + buffers); }
};

struct StageWork : Work {            // bytes that travel in the ring, to device memory
  std::byte* destination = nullptr;  // host view
  int64_t size = 0;
  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};

struct CopyWork : Work {
  std::byte* destination = nullptr;
  const std::byte* source = nullptr;
  int64_t size = 0;
};

struct FillWork : Work {
  std::byte* destination = nullptr;
  int64_t size = 0;
  int value = 0;
};

struct CallBackWork : Work {
  void (*function)(void*) = nullptr;
  void* argument = nullptr;
};

class Engine;
struct WaitWork : Work {  // until another device's work is done
  Engine* engine = nullptr;
  uint64_t ticket = 0;
};

class WorkQueue {
 public:
  static constexpr size_t kBytes = 1 << 20;
  static constexpr size_t kMaxRecord = kBytes / 4;

  WorkQueue();
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // ---- producer, one at a time (the device's lock)
  // Space for a record of `bytes` (rounded up to 16), header written; nullptr while the ring is full.
  // Throws InternalError beyond kMaxRecord.
  Work* reserve(size_t bytes, WorkKind kind);
  // Makes the reserved record visible; its ticket.
  uint64_t publish();

  // ---- any thread; sequentially consistent, because threads decide by them whether to sleep (bell.h)
  uint64_t submitted() const { return head_.load(std::memory_order_seq_cst); }
  uint64_t completed() const { return tail_.load(std::memory_order_seq_cst); }

  // ---- consumer, one at a time
  Work* next();  // the oldest record that is not done, nullptr when there is none
  uint64_t ticket() const { return position_ + record_bytes_; }  // of the record that `next` returned
  void done();                                                   // that record is done

 private:
  Work* at(uint64_t position) const { return reinterpret_cast<Work*>(ring_ + position % kBytes); }

  std::byte* ring_ = nullptr;
  // Written by producers
  alignas(64) std::atomic<uint64_t> head_{0};
  uint64_t reserved_ = 0;  // end of the record being written
  uint64_t known_tail_ = 0;
  // Written by the consumer
  alignas(64) std::atomic<uint64_t> tail_{0};
  uint64_t position_ = 0, known_head_ = 0;
  uint64_t record_bytes_ = 0;
};

}  // namespace opentrn::runtime
