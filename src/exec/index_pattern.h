// Numbers that iota, affine_select and gpsimd_kernel derive from an element's position:
// base + channel_multiplier * partition + sum(stride[d] * index[d]), in 64-bit arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "exec/operation.h"

namespace opentrn::exec {

struct IndexPattern {
  ScalarOperand base;                   // s0: immediate or launch argument
  SmallVector<isa::Term, 4> terms;
  int ndim = 0;                         // the partition is dimension 0
  int64_t count[5] = {}, stride[5] = {};

  IndexPattern() = default;
  // Without a pattern the strides are those of the flattened iteration over `partitions` x `free` elements.
  IndexPattern(const isa::Instruction& i, const Context& context, int64_t partitions, int64_t free) : base(i.s0, context) {
    terms = i.pattern_terms;
    const bool given = i.pattern.size() > 0 || i.channel_multiplier != 0;
    count[ndim] = partitions;
    stride[ndim++] = given ? i.channel_multiplier : free;
    for (const isa::Dim& dim : i.pattern) {
      count[ndim] = dim.count;
      stride[ndim++] = dim.stride;
    }
    if (i.pattern.size() == 0) {
      count[ndim] = free;
      stride[ndim++] = 1;
    }
  }

  int64_t start(const Frame& frame) const {
    int64_t value = base.value(frame).integer;
    for (const isa::Term& term : terms) value += term.bytes * frame.registers.loops[term.reg];
    return value;
  }
};

struct IndexCursor {
  const IndexPattern* pattern;
  int64_t value;  // of the current element
  int64_t index[5] = {};

  IndexCursor(const IndexPattern& p, int64_t start) : pattern(&p), value(start) {}
  // The next n numbers; modulo 2^32 when T is 32 bits wide.
  template <typename T>
  void next(T* to, int64_t n) {
    const int last = pattern->ndim - 1;
    while (n > 0) {
      const int64_t m = std::min(n, pattern->count[last] - index[last]);
      const int64_t step = pattern->stride[last];
      auto v = static_cast<std::make_unsigned_t<T>>(value);
      const auto by = static_cast<std::make_unsigned_t<T>>(step);
      for (int64_t i = 0; i < m; ++i, v += by) to[i] = static_cast<T>(v);
      value += m * step;
      to += m;
      n -= m;
      index[last] += m;
      for (int d = last; d > 0 && index[d] == pattern->count[d]; --d) {
        value += pattern->stride[d - 1] - pattern->stride[d] * pattern->count[d];
        index[d] = 0;
        ++index[d - 1];
      }
    }
  }
};

}  // namespace opentrn::exec
