#include "aten/families.h"
#include "aten/pointwise.h"

namespace opentrn::aten {
namespace {

// Products accumulate in f32 (f64, i64 in their own) and round once to the result's dtype.
Values mm(Call& c) {
  const ValueId x = c.tensor("self"), y = c.tensor("mat2");
  return {c.to_result(c.b.matmul(x, y, c.results[0].dtype))};
}

Values mv(Call& c) {
  return {c.to_result(c.b.dot_general(c.tensor("self"), c.tensor("vec"), {}, {}, {1}, {0}, c.results[0].dtype))};
}

Values dot(Call& c) {
  return {c.to_result(c.b.dot_general(c.tensor("self"), c.tensor("tensor"), {}, {}, {0}, {0}, c.results[0].dtype))};
}

Values vdot(Call& c) {
  return {c.to_result(c.b.dot_general(c.tensor("self"), c.tensor("other"), {}, {}, {0}, {0}, c.results[0].dtype))};
}

// beta * self + alpha * product; the product is not rounded before the sum. beta = 0 ignores self, NaN included.
Values plus_product(Call& c, Value product) {
  auto times = [&](Value x, const char* factor) {
    return Value(c.b, arithmetic(c.b, Op::multiply, x.id, c.number(factor, x.dtype())));
  };
  if (!number_is(c, "alpha", 1)) product = times(product, "alpha");
  if (number_is(c, "beta", 0)) return {c.to_result(product.id)};
  Value self = input(c, "self", c.results[0].dtype);
  if (!number_is(c, "beta", 1)) self = times(self, "beta");
  return {c.to_result(arithmetic(c.b, Op::add, product.id, self.id))};
}

Values addmm(Call& c) {
  return plus_product(c, {c.b, c.b.matmul(c.tensor("mat1"), c.tensor("mat2"), opmath(c.results[0].dtype))});
}

Values baddbmm(Call& c) {
  return plus_product(c, {c.b, c.b.matmul(c.tensor("batch1"), c.tensor("batch2"), opmath(c.results[0].dtype))});
}

Values addbmm(Call& c) {  // the batch is contracted too
  const DType wide = opmath(c.results[0].dtype);
  return plus_product(c, {c.b, c.b.dot_general(c.tensor("batch1"), c.tensor("batch2"), {}, {}, {0, 2}, {0, 1}, wide)});
}

Values addmv(Call& c) {
  const DType wide = opmath(c.results[0].dtype);
  return plus_product(c, {c.b, c.b.dot_general(c.tensor("mat"), c.tensor("vec"), {}, {}, {1}, {0}, wide)});
}

Values addr(Call& c) {
  const DType dtype = c.results[0].dtype;
  const ValueId column = c.b.reshape(operand(c, "vec1", dtype), {c.results[0].shape[0], 1});
  return plus_product(c, {c.b, arithmetic(c.b, Op::multiply, column, operand(c, "vec2", dtype))});
}

}  // namespace

std::vector<Entry> matmul() {
  return {
      {"aten::mm", mm}, {"aten::mm.dtype", mm}, {"aten::bmm", mm}, {"aten::bmm.dtype", mm}, {"aten::addmm", addmm},
      {"aten::addmm.dtype", addmm}, {"aten::baddbmm", baddbmm}, {"aten::baddbmm.dtype", baddbmm},
      {"aten::addbmm", addbmm}, {"aten::addmv", addmv}, {"aten::mv", mv}, {"aten::dot", dot}, {"aten::vdot", vdot},
      {"aten::addr", addr},
  };
}

}  // namespace opentrn::aten
