#include "exec/operand.h"

#include <algorithm>
#include <utility>

#include "exec/simd.h"

namespace opentrn::exec {
namespace {

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

template <typename T>
void gather_as(Cursor& cursor, std::byte* to, int64_t n) {
  const int64_t stride = cursor.operand->stride[cursor.operand->ndim - 1];
  while (n > 0) {
    const int64_t m = std::min(n, cursor.run());
    const std::byte* from = cursor.at();
    if (stride == static_cast<int64_t>(sizeof(T))) {
      copy_run(to, from, static_cast<size_t>(m) * sizeof(T));
    } else if (stride == 0) {
      const T value = load<T>(from);
      for (int64_t i = 0; i < m; ++i) store(to + i * sizeof(T), value);
    } else {
      for (int64_t i = 0; i < m; ++i) store(to + i * sizeof(T), load<T>(from + i * stride));
    }
    to += m * sizeof(T);
    n -= m;
    cursor.skip(m);
  }
}

template <typename T>
void scatter_as(Cursor& cursor, const std::byte* from, int64_t n) {
  const int64_t stride = cursor.operand->stride[cursor.operand->ndim - 1];
  while (n > 0) {
    const int64_t m = std::min(n, cursor.run());
    std::byte* to = cursor.at();
    if (stride == static_cast<int64_t>(sizeof(T))) {
      copy_run(to, from, static_cast<size_t>(m) * sizeof(T));
    } else {
      for (int64_t i = 0; i < m; ++i) store(to + i * stride, load<T>(from + i * sizeof(T)));
    }
    from += m * sizeof(T);
    n -= m;
    cursor.skip(m);
  }
}

}  // namespace

void set_dims(Operand& operand, const int64_t* count, const int64_t* stride, int ndim) {
  operand.ndim = 0;
  operand.total = 1;
  for (int d = 0; d < ndim; ++d) {
    operand.total *= count[d];
    if (count[d] == 1) continue;
    if (operand.ndim > 0 && operand.stride[operand.ndim - 1] == stride[d] * count[d]) {
      operand.count[operand.ndim - 1] *= count[d];
      operand.stride[operand.ndim - 1] = stride[d];
    } else {
      operand.count[operand.ndim] = count[d];
      operand.stride[operand.ndim] = stride[d];
      ++operand.ndim;
    }
  }
  if (operand.ndim == 0) {
    operand.ndim = 1;
    operand.count[0] = 1;
    operand.stride[0] = operand.size;
  }
  operand.contiguous = operand.stride[operand.ndim - 1] == operand.size;
}

int common_dims(const Operand& a, const Operand& b, int64_t* count, int64_t* a_stride, int64_t* b_stride) {
  if (a.total != b.total || a.total == 0) return 0;
  int ia = a.ndim - 1, ib = b.ndim - 1, n = 0;
  int64_t left_a = a.count[ia], left_b = b.count[ib], done_a = 1, done_b = 1;  // of the current dimensions
  while (ia >= 0 && ib >= 0) {
    const int64_t m = std::min(left_a, left_b);
    if (left_a % m != 0 || left_b % m != 0) return 0;
    count[n] = m;
    a_stride[n] = a.stride[ia] * done_a;
    b_stride[n] = b.stride[ib] * done_b;
    ++n;
    left_a /= m, left_b /= m;
    done_a *= m, done_b *= m;
    if (left_a == 1 && --ia >= 0) left_a = a.count[ia], done_a = 1;
    if (left_b == 1 && --ib >= 0) left_b = b.count[ib], done_b = 1;
  }
  std::reverse(count, count + n);
  std::reverse(a_stride, a_stride + n);
  std::reverse(b_stride, b_stride + n);
  return n;
}

bool overlaps_unequally(const Operand& a, const std::byte* a_at, const Operand& b, const std::byte* b_at) {
  if (a.memory != b.memory) return false;
  if (a_at == b_at && a.size == b.size && a.ndim == b.ndim) {
    bool same = true;
    for (int d = 0; d < a.ndim; ++d) same &= a.count[d] == b.count[d] && a.stride[d] == b.stride[d];
    if (same) return false;
  }
  if (a.memory == isa::Memory::hbm) {
    const auto range = [](const Operand& o, const std::byte* at) {
      const int64_t span = o.partition_stride * (o.partitions - 1);
      const auto base = reinterpret_cast<intptr_t>(at);
      return std::pair(base + o.lowest + std::min<int64_t>(0, span), base + o.highest + std::max<int64_t>(0, span));
    };
    const auto [a_low, a_high] = range(a, a_at);
    const auto [b_low, b_high] = range(b, b_at);
    return a_low < b_high && b_low < a_high;
  }
  if (a.partition >= b.partition + b.partitions || b.partition >= a.partition + a.partitions) return false;
  // Addresses of both in the same row.
  const int64_t a_column = reinterpret_cast<intptr_t>(a_at) - a.partition * a.partition_stride;
  const int64_t b_column = reinterpret_cast<intptr_t>(b_at) - b.partition * b.partition_stride;
  return a_column + a.lowest < b_column + b.highest && b_column + b.lowest < a_column + a.highest;
}

void gather(Cursor& cursor, std::byte* to, int64_t n) {
  switch (cursor.operand->size) {
    case 1: return gather_as<uint8_t>(cursor, to, n);
    case 2: return gather_as<uint16_t>(cursor, to, n);
    case 4: return gather_as<uint32_t>(cursor, to, n);
    case 8: return gather_as<uint64_t>(cursor, to, n);
    default: return gather_as<Wide>(cursor, to, n);
  }
}

void scatter(Cursor& cursor, const std::byte* from, int64_t n) {
  switch (cursor.operand->size) {
    case 1: return scatter_as<uint8_t>(cursor, from, n);
    case 2: return scatter_as<uint16_t>(cursor, from, n);
    case 4: return scatter_as<uint32_t>(cursor, from, n);
    case 8: return scatter_as<uint64_t>(cursor, from, n);
    default: return scatter_as<Wide>(cursor, from, n);
  }
}

void copy(Cursor& to, Cursor& from, int64_t n, std::byte* buffer) {
  const int64_t size = to.operand->size;
  while (n > 0) {
    int64_t m = n;
    if (to.operand->contiguous && to.operand->inner() >= from.operand->inner()) {
      m = std::min(n, to.run());
      if (from.operand->contiguous && m <= from.run()) {
        const auto bytes = static_cast<size_t>(m * size);
        if (bytes >= kStreamBytes) simd().stream_copy(to.at(), from.at(), bytes);
        else std::memcpy(to.at(), from.at(), bytes);
        from.skip(m);
      } else {
        gather(from, to.at(), m);
      }
      to.skip(m);
    } else if (from.operand->contiguous) {
      m = std::min(n, from.run());
      scatter(to, from.at(), m);
      from.skip(m);
    } else {
      m = std::min(n, kChunk);
      gather(from, buffer, m);
      scatter(to, buffer, m);
    }
    n -= m;
  }
}

}  // namespace opentrn::exec
