// Decides how a batched matrix multiplication is tiled: which operand is stationary, the blocks of M, N and K, and what
// stays resident in SBUF. The choice minimises an estimate of the kernel's time on the chip at hand.
#pragma once

#include <vector>

#include "compiler/view.h"
#include "spec/chip.h"

namespace opentrn::compiler {

// A matrix operand after its dimensions were put in order: element (batch, row, column) lies at
// offset + sum(batch[i] * batch_strides[i]) + row * row_stride + column * column_stride.
struct MatrixView {
  int buffer = -1;
  DType dtype = DType::f32;
  int64_t offset = 0;
  int64_t row_stride = 0, column_stride = 0;
  std::vector<int64_t> batch_strides;
};

// out[b, m, n] = sum over k of lhs[b, k, m] * rhs[b, k, n]. `lhs` is the stationary operand, `rhs` the moving one;
// rows of both are the contraction.
struct MatmulProblem {
  std::vector<int64_t> batch;
  int64_t m = 1, n = 1, k = 1;
  MatrixView lhs, rhs, out;
  DType compute = DType::f32;  // type of both operands in SBUF
};

// Orders the operands so that the result's contiguous dimension is n, folds batch dimensions into m or n where the
// strides allow, merges the others, and takes share `core` of `cores`. Returns false when nothing is left for the core.
bool normalise(const View& lhs, const View& rhs, const View& out, int core, int cores, MatmulProblem& problem);

// How an operand gets from HBM into SBUF with the contraction on partitions.
enum class Load : uint8_t {
  rows,       // rows of HBM become rows of SBUF, as runs of contiguous elements where there are any
  transpose,  // the contraction is contiguous in HBM: the DMA engines transpose
  vector,     // one column whose elements are contiguous: read as [k / 128, 128] and transposed at once
};
Load load_of(const MatrixView& operand, DType compute, int64_t columns);

// Most HBM rows of one dma_transpose (isa/program.h).
inline constexpr int64_t kTransposeRows = 512;

// n: `blocks` blocks of `size` columns, `step` apart (neighbours overlap where n has no fitting divisor), then `rest`.
struct Blocks {
  int64_t size = 0, step = 0, blocks = 0, rest = 0;
};

// How the contraction lies on the partitions. A K block is `rows_per_partition` K tiles of 128 rows: row
// block * 128 * rows_per_partition + partition * rows_per_partition + r belongs to tile r of the block. Two rows per
// partition let dma_transpose move pairs of 16-bit values as one 32-bit value, at twice the rate. What is left over
// (less than a block) is the tail: plain tiles of up to 128 consecutive rows.
struct MatmulPlan {
  int64_t rows_per_partition = 1;
  int64_t k_blocks = 0;
  int64_t tail_rows = 0;
  // K blocks of one load, the unit in which panels arrive: the first chunk is short, so that the tensor engine starts
  // early, and the others have chunk_blocks (the last one what is left). The tail is one more chunk.
  int64_t first_blocks = 0, chunk_blocks = 1;
  bool resident = true;      // panels of all of K stay in SBUF; otherwise both operands stream through it
  int64_t group_m = 1;       // stationary tiles whose results accumulate side by side in PSUM
  int64_t block_m = 0, panels = 0;   // panels of lhs of block_m columns, a multiple of group_m tiles of 128 ...
  int64_t last_m = 0;                // ... then one of the columns that are left, if any (it may be the wider)
  Blocks n;
  int64_t tile_n = 512;      // most moving columns of one matmul
  int lhs_depth = 2, rhs_depth = 2;  // slots of a chunk each
  int out_depth = 2;                 // slots for each of the two evacuating engines
  double estimated_ns = 0;

  int64_t widest_panel() const { return last_m > block_m || panels == 0 ? last_m : block_m; }
  int64_t k_tiles() const { return k_blocks * rows_per_partition + (tail_rows + 127) / 128; }
  int64_t panel_chunks() const {  // of all of K
    const int64_t others = k_blocks - first_blocks;
    return (first_blocks > 0 ? 1 : 0) + (others + chunk_blocks - 1) / chunk_blocks + (tail_rows > 0 ? 1 : 0);
  }
  int64_t chunk_tiles() const;  // K tiles that a slot holds
};

// `sbuf_bytes`: what the kernel may use of each partition.
MatmulPlan plan_matmul(const MatmulProblem& problem, const spec::Chip& chip, int64_t sbuf_bytes);

// Splits `extent` into the fewest pieces of at most `limit`, of sizes that differ by at most one.
std::vector<int64_t> even_pieces(int64_t extent, int64_t limit);

}  // namespace opentrn::compiler
