// The running reduction of one row of f32 or bf16 elements in the fixed order that ReduceBlockFn documents.
#pragma once

#include <algorithm>

#include "exec/simd.h"
#include "isa/program.h"

namespace opentrn::exec {

class Reduction {
 public:
  Reduction() {}
  explicit Reduction(isa::AluOp op, bool bf16 = false)
      : block_((bf16 ? simd().reduce_block_bf16 : simd().reduce_block)[static_cast<int>(op)]), bytes_(bf16 ? 2 : 4), combine_(simd().f32[static_cast<int>(op)]), blocks_(0), depth_(0) {}
  void restart() { blocks_ = 0, depth_ = 0; }

  // The next n elements; every call but the last brings a multiple of kReduceBlock.
  void add(const void* from, size_t n) {
    for (size_t i = 0; i < n; i += kReduceBlock) {
      block_(static_cast<const std::byte*>(from) + i * bytes_, std::min(kReduceBlock, n - i), lanes_[depth_]);
      ++depth_;
      ++blocks_;
      for (size_t b = blocks_; b % 2 == 0; b /= 2) merge();
    }
  }

  // At least one element was added.
  float finish() {
    while (depth_ > 1) merge();
    float* lanes = lanes_[0];
    for (size_t half = kReduceLanes / 2; half > 0; half /= 2) combine_(lanes, lanes, lanes + half, half, Form::rows);
    return lanes[0];
  }

 private:
  void merge() {
    combine_(lanes_[depth_ - 2], lanes_[depth_ - 2], lanes_[depth_ - 1], kReduceLanes, Form::rows);
    --depth_;
  }

  ReduceBlockFn block_;
  size_t bytes_;
  BinaryFn<float> combine_;
  size_t blocks_;
  int depth_;
  alignas(64) float lanes_[40][kReduceLanes];
};

}  // namespace opentrn::exec
