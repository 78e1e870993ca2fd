#include "compiler/view.h"

#include <algorithm>

#include "base/error.h"

namespace opentrn::compiler {

View transposed(const View& view, const std::vector<int64_t>& permutation) {
  View result = view;
  for (size_t i = 0; i < permutation.size(); ++i) {
    result.shape[i] = view.shape[permutation[i]];
    result.strides[i] = view.strides[permutation[i]];
  }
  return result;
}

View sliced(const View& view, const std::vector<int64_t>& starts, const std::vector<int64_t>& limits,
            const std::vector<int64_t>& strides) {
  View result = view;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t step = strides.empty() ? 1 : strides[i];
    result.offset += starts[i] * view.strides[i];
    result.shape[i] = (limits[i] - starts[i] + step - 1) / step;
    result.strides[i] = view.strides[i] * step;
  }
  return result;
}

View broadcast(const View& view, const std::vector<int64_t>& shape, const std::vector<int64_t>& dims) {
  View result = view;
  result.shape = shape;
  result.strides.assign(shape.size(), 0);
  for (size_t i = 0; i < dims.size(); ++i)
    if (view.shape[i] == shape[dims[i]]) result.strides[dims[i]] = view.strides[i];
  return result;
}

View reversed(const View& view, const std::vector<int64_t>& dims) {
  View result = view;
  for (int64_t d : dims) {
    if (view.shape[d] > 0) result.offset += (view.shape[d] - 1) * view.strides[d];
    result.strides[d] = -view.strides[d];
  }
  return result;
}

std::optional<View> reshaped(const View& view, const std::vector<int64_t>& shape) {
  View result = view;
  result.shape = shape;
  result.strides.assign(shape.size(), 0);
  if (view.elements() == 0) return result;
  // Walk both shapes from the last dimension; a run of old dimensions that is one stride covers a run of new ones.
  size_t old_end = view.shape.size();
  size_t new_end = shape.size();
  while (new_end > 0) {
    if (shape[new_end - 1] == 1) {
      --new_end;
      continue;
    }
    while (old_end > 0 && view.shape[old_end - 1] == 1) --old_end;
    if (old_end == 0) throw InternalError("reshaped: element counts differ");
    int64_t run = view.shape[old_end - 1], stride = view.strides[old_end - 1];
    size_t old_begin = old_end - 1;
    while (old_begin > 0) {
      const int64_t size = view.shape[old_begin - 1];
      if (size != 1 && view.strides[old_begin - 1] != stride * run) break;
      if (size != 1) run *= size;
      --old_begin;
    }
    int64_t covered = 1;
    while (new_end > 0 && covered * shape[new_end - 1] <= run) {
      result.strides[new_end - 1] = stride * covered;
      covered *= shape[new_end - 1];
      --new_end;
    }
    // The new dimensions need not cover the whole run: what is left must be old dimensions of their own.
    if (covered == 1) return std::nullopt;
    while (covered > 1) {
      if (covered % view.shape[old_end - 1] != 0) {
        // A new boundary inside an old dimension: keep the upper part as a dimension of the old view.
        if (view.shape[old_end - 1] % covered != 0) return std::nullopt;
        View rest = view;
        rest.shape.resize(old_end);
        rest.strides.resize(old_end);
        rest.shape[old_end - 1] /= covered;
        rest.strides[old_end - 1] *= covered;
        auto upper = reshaped(rest, std::vector<int64_t>(shape.begin(), shape.begin() + static_cast<int64_t>(new_end)));
        if (!upper) return std::nullopt;
        std::copy(upper->strides.begin(), upper->strides.end(), result.strides.begin());
        return result;
      }
      covered /= view.shape[old_end - 1];
      --old_end;
      while (covered > 1 && old_end > 0 && view.shape[old_end - 1] == 1) --old_end;
    }
  }
  return result;
}

View reinterpreted(const View& view, DType dtype) {
  View result = view;
  result.dtype = dtype;
  const int64_t from = size_of(view.dtype), to = size_of(dtype);
  if (from == to) return result;
  if (from % to != 0) throw InternalError("reinterpreted: the new type is wider");
  const int64_t parts = from / to;
  result.offset *= parts;
  for (int64_t& stride : result.strides) stride *= parts;
  result.shape.push_back(parts);
  result.strides.push_back(1);
  return result;
}

}  // namespace opentrn::compiler
