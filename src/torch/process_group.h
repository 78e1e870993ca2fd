// The c10d backend `neuron` for a world of one rank, whose collectives are copies.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace opentrn::bridge {

// Throws a clear error when `size` is more than this version supports.
c10::intrusive_ptr<c10d::Backend> make_process_group(int rank, int size);

}  // namespace opentrn::bridge
