// Matrix multiplications of the host plan: what the tensor engine does in tiles of 128 x 128 x 512 becomes as few, as large
// nc_matmul "instructions" as the same sums allow; blocking for the host's caches is their business (tensor_engine.cc).
#pragma once

#include <vector>

#include "exec/host_ir.h"

namespace opentrn::exec::host {

// Separates loops of independent multiplications and joins accumulations over consecutive blocks of K. Each element's sum
// keeps its order.
void join_accumulations(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots, size_t tiles);
// Joins multiplications of neighbouring rows by the same moving operand.
void join_rows(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots, size_t tiles);

}  // namespace opentrn::exec::host
