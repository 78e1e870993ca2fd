// The last passes of the host plan: memory for tiles, and decoding. On the host a tile is a few rows of one more buffer,
// the arena; its operands become operands in "HBM" there.
#pragma once

#include <span>
#include <vector>

#include "exec/executable.h"
#include "exec/host_ir.h"
#include "exec/host_strips.h"

namespace opentrn::exec::host {

struct Layout {
  size_t bytes = 0;  // of the arena
};

// Rewrites all operands in tiles; tiles that are never in use at the same time share memory.
Layout lay_out(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots,
               const std::vector<Place>& places);

// Decodes laid out nodes. Step::instruction is the position in the core's code.
void decode_nodes(std::span<const Node> nodes, const isa::Program& program, Executable::Code& code);

}  // namespace opentrn::exec::host
