// Reductions on values that several families share.
#pragma once

#include "aten/support.h"

namespace opentrn::aten {

// Mean of x over dims; NaN over no elements.
Value mean_over(Value x, const std::vector<int64_t>& dims, bool keep);
// Mean, and sum of squared deviations from it, in two passes; both keep the reduced dimensions with size 1.
std::pair<Value, Value> moments(Value x, const std::vector<int64_t>& dims);
int64_t count_over(const Shape& shape, const std::vector<int64_t>& dims);
// The p-norm of x over dims.
Value norm_over(Value x, double p, const std::vector<int64_t>& dims, bool keep);

}  // namespace opentrn::aten
