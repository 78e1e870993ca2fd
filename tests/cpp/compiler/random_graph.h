// Random graphs of element-wise operations, broadcasts, layouts, reductions and contractions.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "graph/builder.h"

namespace opentrn::compiler {

class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : random_(seed), b_("random" + std::to_string(seed)) {}

  graph::Graph make() {
    const size_t rank = 1 + pick(4);
    for (size_t d = 0; d < rank; ++d) shape_.push_back(size());
    while (graph::elements(shape_) > 60000) shape_[pick(rank)] = 1 + static_cast<int64_t>(pick(5));
    dtype_ = std::vector{DType::f32, DType::f32, DType::bf16, DType::i64, DType::f64}[pick(5)];
    const size_t inputs = 1 + pick(3);
    for (size_t k = 0; k < inputs; ++k) values_.push_back(input());
    const size_t steps = 2 + pick(8);
    for (size_t k = 0; k < steps; ++k) values_.push_back(step());
    const size_t results = 1 + pick(2);
    for (size_t k = 0; k < results; ++k) {
      const ValueId v = values_[values_.size() - 1 - pick(std::min<size_t>(3, values_.size()))];
      Layout where = layout(b_.shape(v));
      where.offset = 0;  // the address of a result is that of its first element
      b_.result(v, where);
    }
    return b_.take();
  }

 private:
  using Builder = graph::Builder;
  using Layout = graph::Layout;
  using Op = graph::Op;
  using Shape = graph::Shape;
  using ValueId = graph::ValueId;

  size_t pick(size_t n) { return random_() % n; }
  int64_t size() {
    const int64_t sizes[] = {1, 2, 3, 7, 16, 33, 64, 128, 130, 257, 1000};
    return sizes[pick(std::size(sizes))];
  }

  // A permuted or padded layout that covers every element once.
  Layout layout(const Shape& shape) {
    std::vector<size_t> order(shape.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = d;
    if (pick(3) == 0) std::shuffle(order.begin(), order.end(), random_);
    Layout result;
    result.strides.assign(shape.size(), 0);
    int64_t stride = pick(6) == 0 ? 2 : 1;
    for (size_t k = order.size(); k-- > 0;) {
      result.strides[order[k]] = stride;
      stride *= shape[order[k]] + (pick(8) == 0 ? 3 : 0);
    }
    result.offset = static_cast<int64_t>(pick(2) * 5);
    return result;
  }

  ValueId input() {
    Shape shape = shape_;
    for (int64_t& s : shape)
      if (pick(4) == 0) s = 1;
    Layout where = layout(shape);
    if (pick(5) == 0 && !shape.empty()) where.strides[pick(shape.size())] = 0;
    return b_.broadcast(b_.parameter({dtype_, shape}, where), shape_);
  }

  ValueId any() { return values_[pick(values_.size())]; }
  ValueId same() {  // a value of the full shape
    for (int k = 0; k < 8; ++k) {
      const ValueId v = any();
      if (b_.shape(v) == shape_) return v;
    }
    return values_[0];
  }

  ValueId step() {
    const bool real = is_float(dtype_);
    switch (pick(10)) {
      case 0: return b_.binary(Op::add, same(), same());
      case 1: return b_.binary(Op::subtract, same(), same());
      case 2: return b_.binary(Op::maximum, same(), same());
      case 3: return real ? b_.unary(Op::tanh, same()) : b_.unary(Op::neg, same());
      case 4: return b_.binary(Op::multiply, same(), real ? b_.constant(dtype_, 0.75) : b_.constant_int(dtype_, 3));
      case 5: return b_.select(b_.binary(Op::compare_lt, same(), same()), same(), same());
      case 6: {
        // A reduction, brought back to the full shape.
        std::vector<int64_t> dims;
        for (size_t d = 0; d < shape_.size(); ++d)
          if (pick(2)) dims.push_back(static_cast<int64_t>(d));
        if (dims.empty()) dims.push_back(static_cast<int64_t>(pick(shape_.size())));
        const Op op = pick(2) ? Op::reduce_max : Op::reduce_sum;
        ValueId x = same();
        const bool widen = op == Op::reduce_sum && dtype_ == DType::bf16;
        if (widen) x = b_.convert(x, DType::f32);
        ValueId r = b_.reduce(op, x, dims, true);
        if (op == Op::reduce_sum && real) {
          int64_t n = 1;
          for (int64_t d : dims) n *= shape_[d];
          r = b_.binary(Op::multiply, r, b_.constant(b_.dtype(r), 1.0 / static_cast<double>(n)));
        }
        if (widen) r = b_.convert(r, dtype_);
        return b_.broadcast(r, shape_);
      }
      case 7: {
        const ValueId v = same();
        const int64_t d = static_cast<int64_t>(pick(shape_.size()));
        return b_.reverse(v, {d});
      }
      case 8: {
        // There and back through another shape.
        const ValueId v = same();
        return b_.reshape(b_.reshape(v, {graph::elements(shape_)}), shape_);
      }
      default: {
        const int64_t d = static_cast<int64_t>(pick(shape_.size()));
        if (shape_[d] < 2) return b_.binary(Op::add, same(), same());
        const ValueId v = same();
        std::vector<int64_t> zero(shape_.size(), 0), limits = shape_, middle(shape_.size(), 0), ones(shape_.size(), 1);
        middle[d] = limits[d] = shape_[d] / 2;
        const ValueId low = b_.slice(v, zero, limits, ones), high = b_.slice(v, middle, shape_, ones);
        return b_.concatenate({high, low}, d);
      }
    }
  }

  std::mt19937 random_;
  Builder b_;
  Shape shape_;
  DType dtype_ = DType::f32;
  std::vector<ValueId> values_;
};

}  // namespace opentrn::compiler
