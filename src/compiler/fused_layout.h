// How a fused kernel's iteration space lies on partitions, free dimensions and loops.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/fused.h"

namespace opentrn::compiler {

// Merges neighbouring dimensions that every operand and output walks as one, and drops those of one element.
void collapse_dimensions(Fused& fused);

// A dimension split as (loop, 128 partitions, rows): partition p of a block covers `rows` consecutive indices.
struct FusedLayout {
  int partition_dim = -1;      // -1: everything on one partition
  int64_t rows = 1;            // consecutive indices of partition_dim per partition
  std::vector<int> free_dims;  // whole dimensions inside a tile, outermost first
  int chunk_dim = -1;          // innermost free dimension, cut into chunks; -1: none besides `rows`
  int64_t chunk = 1;           // elements of chunk_dim in a tile
  std::vector<int> loops;      // dimensions iterated one index at a time, outermost first
  bool transposed = false;     // some operand is read through dma_transpose: one free dimension only
};

// `row_bytes_budget`: how many bytes per partition one value's tile may take. `single_row`: a row program accumulates, so
// only one reduced dimension may lie inside a tile.
FusedLayout choose_layout(const Fused& fused, int64_t row_bytes_budget, bool whole_rows, bool single_row);

// Bytes per element of the widest value that is loaded, stored or computed.
int64_t widest(const Fused& fused);

}  // namespace opentrn::compiler
