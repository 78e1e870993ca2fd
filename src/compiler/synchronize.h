// Inserts the semaphores of one kernel: given instructions in program order that name their tiles, adds the waits and
// posts (and event instructions to carry them) that order every conflicting pair of accesses to a tile.
//
// Inside one use of a tile, each change of lane between conflicting accesses (a lane is an engine or a DMA queue)
// becomes a semaphore that starts at 0. The reuse of a pool's slot becomes one semaphore per pair of lanes that starts
// at the pool's depth: the tile's last users post it, the next user of the slot waits for it. All waits and posts of a
// tile happen in the loop body that took it, once per iteration, so the code may be cut or repeated anywhere. One
// exception: a load that the tensor engine needs only after other work in a loop posts a token for each iteration, and
// each iteration takes one at that use. So a panel that many iterations read may arrive piece by piece during the first.
//
//   rotate in              rotate in
//   dma_copy in <- hbm     dma_copy in <- hbm      wait free>=1  post ready+1
//   activation out <- in   activation out <- in    wait ready>=1 post free+1
#pragma once

#include <vector>

#include "isa/program.h"

namespace opentrn::compiler {

// `pools` of the core; new semaphores are appended to `semaphores`. Throws InternalError when a tile is used outside the
// loop body that took it.
std::vector<isa::Instruction> synchronize(std::vector<isa::Instruction> code, const std::vector<isa::Pool>& pools,
                                          std::vector<isa::Semaphore>& semaphores);

}  // namespace opentrn::compiler
