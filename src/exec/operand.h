// An access pattern made ready for the host: byte strides over padded rows, dimensions merged where they are
// contiguous, and a cursor that moves elements between it and contiguous buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "exec/interpreter.h"
#include "isa/program.h"

namespace opentrn::exec {

// Bytes from one partition's row to the next on the host: a whole, odd number of cache lines.
int64_t padded_pitch(int64_t bytes_per_partition);

// What addresses depend on while a core runs.
struct Registers {
  const int64_t* loops = nullptr;
  const int32_t* slots = nullptr;
  std::byte* sbuf = nullptr;
  std::byte* psum = nullptr;
  std::byte* const* buffers = nullptr;
};

struct Operand {
  isa::Memory memory = isa::Memory::none;
  DType dtype = DType::f32;
  int32_t size = 4;                // bytes of one element
  int16_t buffer = -1, slot = -1;
  int16_t terms = 0;
  int16_t partition = 0, partitions = 1;
  bool contiguous = true;          // the innermost merged dimension is dense
  int32_t ndim = 1;                // merged dimensions: partitions first, then the free dimensions
  int64_t count[5] = {1, 1, 1, 1, 1};
  int64_t stride[5] = {};          // bytes
  int64_t total = 1;               // elements
  int64_t free = 1;                // elements per partition
  int64_t partition_stride = 0;    // bytes
  int64_t offset = 0;              // constant part of the address, partition included
  int64_t slot_bytes = 0;
  int64_t lowest = 0, highest = 0; // free dimensions' extent in bytes around the address (highest exclusive)
  isa::Term term[6];

  explicit operator bool() const { return memory != isa::Memory::none; }

  std::byte* address(const Registers& registers) const {
    int64_t at = offset;
    for (int i = 0; i < terms; ++i) at += term[i].bytes * registers.loops[term[i].reg];
    if (memory == isa::Memory::hbm) return registers.buffers[buffer] + at;
    if (slot >= 0) at += slot_bytes * registers.slots[slot];
    return (memory == isa::Memory::sbuf ? registers.sbuf : registers.psum) + at;
  }

  int64_t inner() const { return count[ndim - 1]; }
};

// Replaces the merged dimensions by those given (outermost first, byte strides); count-1 dimensions vanish.
void set_dims(Operand& operand, const int64_t* count, const int64_t* stride, int ndim);

// Splits the dimensions of two operands with equally many elements until they agree. Returns their number, 0 when
// that is impossible; byte strides.
inline constexpr int kMaxCommonDims = 9;
int common_dims(const Operand& a, const Operand& b, int64_t* count, int64_t* a_stride, int64_t* b_stride);

// True when writing `a` may change what is read through `b` at another element: some bytes are shared and the
// two are not the same elements in the same places.
bool overlaps_unequally(const Operand& a, const std::byte* a_at, const Operand& b, const std::byte* b_at);

// Walks an operand's elements in order.
struct Cursor {
  const Operand* operand;
  std::byte* row;  // start of the current innermost run
  int64_t inner;   // position in it
  int64_t index[4];

  Cursor() {}  // to be assigned before use: instructions on a few elements would notice the clearing
  Cursor(const Operand& op, std::byte* at) : operand(&op), row(at), inner(0) {
    for (int d = 0; d < op.ndim - 1; ++d) index[d] = 0;
  }

  int64_t run() const { return operand->inner() - inner; }
  std::byte* at() const { return row + inner * operand->stride[operand->ndim - 1]; }
  void next_row() {
    inner = 0;
    for (int d = operand->ndim - 2; d >= 0; --d) {
      if (++index[d] < operand->count[d]) {
        row += operand->stride[d];
        return;
      }
      row -= operand->stride[d] * (operand->count[d] - 1);
      index[d] = 0;
    }
  }
  // Moves past n elements of the current run.
  void skip(int64_t n) {
    inner += n;
    if (inner == operand->inner()) next_row();
  }
};

struct Wide {
  uint64_t low, high;
};

// Short runs, for which a call of memcpy would cost more than the copy: overlapping blocks of a fixed size.
inline void copy_run(std::byte* to, const std::byte* from, size_t bytes) {
  const auto block = [&](auto unit, size_t at) {
    std::memcpy(&unit, from + at, sizeof unit);
    std::memcpy(to + at, &unit, sizeof unit);
  };
  if (bytes > 256) {
    std::memcpy(to, from, bytes);
  } else if (bytes >= 16) {
    for (size_t at = 0; at + 16 <= bytes; at += 16) block(Wide{}, at);
    block(Wide{}, bytes - 16);
  } else if (bytes >= 8) {
    block(uint64_t{}, 0);
    block(uint64_t{}, bytes - 8);
  } else if (bytes >= 4) {
    block(uint32_t{}, 0);
    block(uint32_t{}, bytes - 4);
  } else {
    for (size_t at = 0; at < bytes; ++at) to[at] = from[at];
  }
}

// Copies the next n elements into a dense buffer, or out of one.
void gather(Cursor& cursor, std::byte* to, int64_t n);
void scatter(Cursor& cursor, const std::byte* from, int64_t n);
// Copies n elements between operands of the same element size; `buffer` holds at least kChunk elements.
inline constexpr int64_t kChunk = 1024;
void copy(Cursor& to, Cursor& from, int64_t n, std::byte* buffer);

}  // namespace opentrn::exec
