#include "exec/operation.h"

#include <algorithm>

#include "base/error.h"

namespace opentrn::exec {

Operand Context::operand(const isa::AccessPattern& pattern) const {
  Operand o;
  if (!pattern) return o;
  o.memory = pattern.memory;
  o.dtype = pattern.dtype;
  o.size = static_cast<int32_t>(size_of(pattern.dtype));
  o.partition = pattern.partition;
  o.partitions = pattern.partitions;
  o.offset = pattern.offset;
  if (pattern.memory == isa::Memory::hbm) {
    o.buffer = pattern.buffer;
    o.partition_stride = pattern.partition_stride * o.size;
  } else {
    const isa::Pool& pool = core.pools.at(pattern.buffer);
    o.partition_stride = pattern.memory == isa::Memory::sbuf ? sbuf_pitch : psum_pitch;
    o.slot = pattern.slot;
    o.slot_bytes = pool.bytes;
    o.offset += pool.offset + pattern.partition * o.partition_stride;
  }
  for (const isa::Term& term : pattern.terms) {
    if (term.bytes == 0) continue;
    o.term[o.terms++] = term;
  }
  int64_t count[5], stride[5];
  int n = 0;
  count[n] = pattern.partitions;
  stride[n++] = o.partition_stride;
  o.highest = o.size;
  for (const isa::Dim& dim : pattern.dims) {
    count[n] = dim.count;
    stride[n] = dim.stride * o.size;
    o.free *= dim.count;
    const int64_t span = stride[n] * (dim.count - 1);
    (span < 0 ? o.lowest : o.highest) += span;
    ++n;
  }
  set_dims(o, count, stride, n);
  return o;
}

ScalarOperand::ScalarOperand(const isa::Scalar& scalar, const Context& context) : kind(scalar.kind) {
  immediate.real = scalar.value;
  // Beyond int64 the integer is not used by any type that could hold it.
  const double clamped = std::clamp(scalar.value, -9.2e18, 9.2e18);
  immediate.integer = scalar.value == scalar.value ? static_cast<int64_t>(clamped) : 0;
  argument = scalar.argument;
  if (is_tile()) tile = context.operand(scalar.tile);
}

void stage(Staged& source, Frame& frame, int slot) {
  std::vector<std::byte>& bytes = frame.scratch->stage[slot];
  const Operand& from = *source.operand;
  bytes.resize(std::max<size_t>(bytes.size(), static_cast<size_t>(from.total * from.size) + 64));
  Cursor cursor(from, source.at);
  gather(cursor, bytes.data(), from.total);
  Operand& dense = frame.scratch->staged[slot];
  dense = from;
  const int64_t count[1] = {from.total}, stride[1] = {from.size};
  set_dims(dense, count, stride, 1);
  source.operand = &dense;
  source.at = bytes.data();
}

DType raw_unsigned(DType dtype) {
  switch (size_of(dtype)) {
    case 1: return dtype == DType::boolean ? DType::boolean : DType::u8;
    case 2: return DType::u16;
    case 4: return DType::u32;
    default: return DType::u64;
  }
}

}  // namespace opentrn::exec
