// The families of the lowering table: each file of this folder lists its operators through one of these functions.
// They are called explicitly, since a static library drops objects that only register themselves.
#pragma once

#include "aten/lowering.h"

namespace opentrn::aten {

std::vector<Entry> pointwise();      // unary, arithmetic, comparison, logic, select
std::vector<Entry> activation();     // gelu, silu, relu and the like, with their gradients
std::vector<Entry> reduction();      // sum, mean, max, var, norm, cumulative
std::vector<Entry> matmul();         // mm, bmm, addmm, mv, dot
std::vector<Entry> normalization();  // softmax, layer, group, batch and RMS norm
std::vector<Entry> indexing();       // embedding, gather, scatter, index, index_put
std::vector<Entry> ordering();       // sort, topk
std::vector<Entry> loss();           // nll, mse, binary cross entropy
std::vector<Entry> creation();       // arange, full, eye, tril
std::vector<Entry> shape();          // cat, flip, roll, repeat, pad, copies
std::vector<Entry> random();         // uniform, normal, bernoulli, dropout, multinomial
std::vector<Entry> foreach();        // _foreach_*
std::vector<Entry> optimizer();      // fused optimizers and gradient scaling

}  // namespace opentrn::aten
