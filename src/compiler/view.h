// A tensor in HBM as a kernel sees it: a buffer of the program, an offset and one stride per dimension.
// Reshape, transpose, slice and broadcast of a tensor in HBM are views wherever strides can express them.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"

namespace opentrn::compiler {

struct View {
  int buffer = -1;               // index into Program::buffers
  DType dtype = DType::f32;
  int64_t offset = 0;            // elements from the buffer's start
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // elements; 0 for a broadcast dimension, negative for a reversed one

  int64_t elements() const { return graph::elements(shape); }
};

View transposed(const View& view, const std::vector<int64_t>& permutation);
View sliced(const View& view, const std::vector<int64_t>& starts, const std::vector<int64_t>& limits,
            const std::vector<int64_t>& strides);
View broadcast(const View& view, const std::vector<int64_t>& shape, const std::vector<int64_t>& dims);
View reversed(const View& view, const std::vector<int64_t>& dims);
// Nothing when the strides cannot express it.
std::optional<View> reshaped(const View& view, const std::vector<int64_t>& shape);
// The same memory read as another type of the same size (or i64 as pairs of i32: the last dimension is split).
View reinterpreted(const View& view, DType dtype);

}  // namespace opentrn::compiler
