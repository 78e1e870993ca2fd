// Programs written by hand: the two published 4096^3 bf16 matmul kernels, and pipelines with random sizes.
#pragma once

#include <cstdint>

#include "isa/program.h"

namespace opentrn::cost {

// C[M,N] = A^T[K,M]^T @ B[K,N] with K = M = N = 4096 in bf16, the way two published profiles of a trn2 do it.
// Every inner iteration loads the B tile of one matmul (and, three times per group of four M tiles, an A tile):
// bound by the DMA's descriptors.
isa::Program matmul_tile_loads();
// Rows of 1024 columns are loaded once per block of 1024 x 1024 and stay in SBUF: bound by the tensor engine.
isa::Program matmul_row_loads();

// A pipeline load -> compute -> store in nested loops, sizes, depths and engines drawn from `seed`.
isa::Program random_pipeline(uint64_t seed);

}  // namespace opentrn::cost
