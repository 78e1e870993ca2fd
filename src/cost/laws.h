// The laws of a chip file by number instead of by name, resolved once per chip.
// Keys are explained in cost/cost.h.
#pragma once

#include <array>
#include <cstddef>

#include "spec/chip.h"

namespace opentrn::cost {

enum class LawKey : unsigned char {
  copy_32, copy_16, copy_16_strided, copy_16_to_32, copy_32_to_16, copy_psum, copy_psum_16,
  scalar_32, scalar_16, scalar_16_strided, scalar_16_to_32, scalar_32_to_16, scalar_psum, scalar_psum_16,
  tensor_32, tensor_16, tensor_psum,
  scalar_tensor_32, scalar_tensor_16, scalar_tensor_psum,
  predicated_split, predicated_sbuf, select,
  reduce_32, reduce_16, reduce_16_to_32, reduce_psum,
  scan, scan_seed, reciprocal, bn_stats, bn_aggr, max8, find_index8, match_replace8, memset, vector_transpose,
  act_function, act_function_16, act_function_32_to_16, act_function_psum, act_silu_psum, act_copy, act_copy_psum,
  act_tile_operand, act_accumulator_read,
  act_tensor_copy_32, act_tensor_copy_16, act_tensor_copy_psum,
  gpsimd_iota, gpsimd_affine_select, gpsimd_copy, gpsimd_scalar, gpsimd_tensor, gpsimd_memset, gpsimd_other,
  gpsimd_partition_reduce,
  kernel_start, kernel_simple, kernel_simple_64, kernel_mul_64, kernel_div, kernel_div_64, kernel_f64, kernel_div_f64,
  kernel_sqrt, kernel_special_64,
  matmul_f32, transpose, transpose_f32,
  count_,
};

using LawTable = std::array<spec::Law, static_cast<size_t>(LawKey::count_)>;

// The chip's laws; kept for the life of the process. Throws UserError naming a law that the chip file lacks.
const LawTable& laws_of(const spec::Chip& chip);

}  // namespace opentrn::cost
