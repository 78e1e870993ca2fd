// Copy forwarding: instructions read what a DMA would have loaded where it lies in HBM, and write what a DMA would have
// stored to where it goes. Each forwarding is proven: nothing changes the bytes in between.
#pragma once

#include <vector>

#include "exec/host_ir.h"

namespace opentrn::exec::host {

// Rewrites the nodes; transfers that nobody needs any more are removed.
void forward_copies(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots, size_t tiles);
// Only what is stored; also what an engine copies out of PSUM.
void forward_stores(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots, size_t tiles);

}  // namespace opentrn::exec::host
