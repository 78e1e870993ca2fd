// The accesses to one piece of memory that later ones must be ordered after, and which of its bytes were written.
// Parts of the order proof (verify_order.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "isa/access.h"

namespace opentrn::isa {

// A lane is an engine or a queue of one core. A clock counts, for each lane, the instructions known to be complete.
inline constexpr int kMaxLanes = 48;  // 2 cores with 5 engines and 16 queues, rounded up
struct Clock {
  std::array<uint32_t, kMaxLanes> time{};
  void join(const Clock& other, int lanes) {
    for (int l = 0; l < lanes; ++l) time[l] = std::max(time[l], other.time[l]);
  }
};

__extension__ typedef unsigned __int128 PartitionMask;
PartitionMask partition_mask(int first, int count);

// An operand, prepared once per instruction.
struct Access {
  Memory memory = Memory::hbm;
  int index = 0;                // hbm: the buffer all aliases lead to; else the pool
  int16_t slot = -1;            // slot register
  int partition = 0, partitions = 1;
  bool reads = false, writes = false;
  bool accumulates = false;     // nc_matmul adding to psum
  bool matmul_result = false;
  ByteSet set;                  // without the loop-dependent terms
  SmallVector<Term, 6> terms;   // one per register
};

// How an address depends on a loop that is not walked in full: iteration `value` and, where it stands for many, the
// `count - 1` that follow, `bytes` apart. Accesses of one pass through such an iteration (`instance`) share the same
// value; a later pass of the same run of the loop (`entry`) has a larger one.
struct Range {
  int64_t bytes = 0, count = 1;
  uint32_t instance = 0, entry = 0;
  int64_t value = 0;
};

// One execution of an access.
struct Record {
  const Access* access = nullptr;
  int64_t base = 0;             // start of the byte set, ranges at zero
  int64_t low = 0, high = 0;    // bounds of all bytes
  int64_t divisor = 0;          // greatest common divisor of all steps and ranges, 0 without any
  uint32_t time = 0;
  int16_t lane = 0;
  int16_t core = 0;
  int32_t instruction = 0;
  SmallVector<Range, 6> ranges;
};

bool overlap(const Record& a, const Record& b);
int64_t divisor_of(const Record& record);

// The bytes of the record as one set, ranges included.
ByteSet all_bytes(const Record& record);

class History {
 public:
  // Calls report(earlier record) for each record that conflicts with `now` and is not before `clock`.
  template <typename F>
  void check(const Record& now, bool write, const Clock& clock, int lanes, const F& report) const {
    if (!ordered(last_write_, clock, lanes)) scan(writes_, now, clock, report);
    if (write && !ordered(last_read_, clock, lanes)) scan(reads_, now, clock, report);
  }

  void add(const Record& record, bool write) {
    std::vector<Record>& list = write ? writes_ : reads_;
    Clock& last = write ? last_write_ : last_read_;
    last.time[record.lane] = record.time;
    if (!list.empty()) {
      Record& newest = list.back();
      if (newest.access == record.access && newest.base == record.base && newest.lane == record.lane &&
          record.high == newest.high && single(record) && single(newest)) {
        newest.time = record.time;
        return;
      }
    }
    list.push_back(record);
  }

  // Forgets everything; what follows is ordered after it (a barrier, or a write that covers all and follows all).
  void clear() {
    if (writes_.empty() && reads_.empty()) return;
    writes_.clear();
    reads_.clear();
    last_read_ = last_write_ = {};
  }
  bool all_before(const Clock& clock, int lanes) const {
    return ordered(last_read_, clock, lanes) && ordered(last_write_, clock, lanes);
  }
  size_t size() const { return reads_.size() + writes_.size(); }
  // Drops the records that are before `floor`; whatever is checked later must be after it.
  void drop_before(const Clock& floor) {
    auto old = [&](const Record& r) { return r.time <= floor.time[r.lane]; };
    std::erase_if(reads_, old);
    std::erase_if(writes_, old);
  }

 private:
  static bool single(const Record& record) {
    for (const Range& range : record.ranges)
      if (range.count > 1) return false;
    return true;
  }
  static bool ordered(const Clock& last, const Clock& clock, int lanes) {
    bool all = true;
    for (int l = 0; l < lanes; ++l) all &= last.time[l] <= clock.time[l];
    return all;
  }

  template <typename F>
  static void scan(const std::vector<Record>& list, const Record& now, const Clock& clock, const F& report) {
    for (const Record& earlier : list)
      if (earlier.time > clock.time[earlier.lane] && overlap(earlier, now)) report(earlier);
  }

  std::vector<Record> reads_, writes_;
  Clock last_read_, last_write_;
};

// Which bytes of a slot were written since its rotation, per partition, and which last by nc_matmul.
class Written {
 public:
  void clear() { segments_.clear(); }
  bool empty() const { return segments_.empty(); }
  void write(int64_t low, int64_t high, PartitionMask partitions, bool matmul);
  void forget(int64_t low, int64_t high, PartitionMask partitions);
  // Whether all these bytes were written (by nc_matmul, if asked).
  bool covers(int64_t low, int64_t high, PartitionMask partitions, bool matmul) const;

 private:
  struct Segment {
    int64_t low, high;
    PartitionMask written, matmul;
  };
  void split_at(int64_t at);
  std::vector<Segment> segments_;  // ascending, disjoint
};

// A union of byte intervals.
class Intervals {
 public:
  void add(int64_t low, int64_t high);
  bool covers(int64_t low, int64_t high) const;
  // The first byte of [low, high) that is missing, or -1.
  int64_t first_missing(int64_t low, int64_t high) const;

 private:
  std::vector<std::pair<int64_t, int64_t>> items_;  // ascending, neither overlapping nor touching
};

}  // namespace opentrn::isa
