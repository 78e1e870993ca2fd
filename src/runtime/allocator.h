// Divides an address range into blocks: best fit, with neighbours merged as soon as they are free.
//
// Requests below 1 MiB share segments of 2 MiB, so that small, long-lived tensors do not split the space of large
// ones; a segment returns to the range when its last block is freed. Allocating and freeing take constant time: free
// blocks are kept in lists by size (two-level segregated fit: a power of two, then one of 32 steps inside it; exact
// below 16 KiB), most recently freed first, because its bytes are still in the host's caches.
// Offsets and sizes in bytes. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace opentrn::runtime {

class Allocator {
 public:
  static constexpr int64_t kUnit = 512;              // every block is a multiple of it
  static constexpr int64_t kSmall = 1 << 20;         // requests below go to segments
  static constexpr int64_t kSegment = 2 << 20;

  struct Extent {
    int64_t offset = -1, bytes = 0;
    int64_t requested = 0;
    int32_t origin = -1;
  };

  explicit Allocator(int64_t capacity_bytes);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Offset of a block of at least `bytes` > 0, -1 when no free block is large enough.
  int64_t allocate(int64_t bytes, int32_t origin);
  // Frees the block that starts at `offset`; bytes = 0 in the result when there is no such block.
  Extent free(int64_t offset);
  // The live block that starts at `offset`, bytes = 0 if none.
  Extent find(int64_t offset) const;
  // The live block that holds the byte at `offset`, bytes = 0 if none. Takes time in proportion to the block's size.
  Extent containing(int64_t offset) const;
  // Returns segments without a live block to the range.
  void release_segments();

  int64_t largest_free() const;
  std::vector<Extent> live() const;          // by address
  std::vector<Extent> free_ranges() const;   // outside segments, by address
  // Throws InternalError naming the broken invariant (tests).
  void check() const;

 private:
  struct Block {
    int64_t units = 0;      // size and position in kUnit
    int64_t start = 0;
    int64_t requested = 0;
    int32_t previous = -1, next = -1;            // neighbours by address in the range or in the segment
    int32_t free_previous = -1, free_next = -1;  // in the list of its size class
    int32_t segment = -1;   // block of the range that this block's segment is, -1: a block of the range itself
    int32_t origin = -1;
    bool is_free = false;
    bool is_segment = false;
  };

  // Free blocks of the range, or of all segments, by size.
  struct FreeLists {
    static constexpr int kSteps = 32, kStepBits = 5, kLevels = 40;
    FreeLists();
    std::array<std::array<int32_t, kSteps>, kLevels> heads;
    std::array<uint32_t, kLevels> steps{};  // bit s of level l: list (l, s) is not empty
    uint64_t levels = 0;
  };

  int32_t new_block();
  void drop_block(int32_t id);
  void insert(FreeLists& lists, int32_t id);
  void remove(FreeLists& lists, int32_t id);
  int32_t best(const FreeLists& lists, int64_t units) const;
  // Takes `units` from the start of a free block and leaves the rest free.
  void take(FreeLists& lists, int32_t id, int64_t units);
  int32_t give_back(FreeLists& lists, int32_t id);  // merges with free neighbours; the resulting block
  int32_t take_from_range(int64_t units);
  int32_t take_from_segments(int64_t units);
  void return_segment(int32_t id);
  int32_t block_at(int64_t offset) const;

  int64_t units_ = 0;                 // of the whole range
  std::vector<Block> blocks_;
  std::vector<int32_t> unused_;       // ids of blocks_ that are free for use
  FreeLists range_, segments_;
  int32_t empty_segment_ = -1;        // one wholly free segment is kept: alternating calls would else move it
  uint32_t* index_ = nullptr;         // per unit: 1 + id of the live block that starts there (sparse mapping)
  size_t index_bytes_ = 0;
};

}  // namespace opentrn::runtime
