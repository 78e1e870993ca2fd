// The inner loops that use vector instructions, as a table of functions chosen once for the host's SIMD target.
// Every function computes the same bits on every target. Rows are dense; they may be identical but not shifted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "exec/convert.h"
#include "exec/matmul.h"
#include "isa/program.h"

namespace opentrn::exec {

inline constexpr int kAluOps = static_cast<int>(isa::AluOp::bypass) + 1;
inline constexpr int kActFns = static_cast<int>(isa::ActFn::erfc) + 1;
inline constexpr int kDTypes = static_cast<int>(DType::c128) + 1;

// Which operands of a binary function are rows, and which a single value.
enum class Form : uint8_t { rows, row_value, value_row };

template <typename T>
using BinaryFn = void (*)(T* to, const T* a, const T* b, size_t n, Form form);
// The same on rows of f32 or bf16: bit 2 of the index says that `a` is bf16, bit 1 `b`, bit 0 `to`. A single value is f32.
using MixedFn = void (*)(void* to, const void* a, const void* b, size_t n, Form form);
inline constexpr size_t kMixedForms = 8;
constexpr size_t mixed_form(DType a, DType b, DType to) {
  return static_cast<size_t>((a == DType::bf16) * 4 + (b == DType::bf16) * 2 + (to == DType::bf16));
}
using UnaryFn = void (*)(float* to, const float* from, size_t n);

// Sums, products, maxima, ... of a row. Fixed order on every target: blocks of 512 elements, in each of which element
// i goes to lane i % 32; the blocks' lanes are combined pairwise as in a binary counter, at the end the lanes in halves.
inline constexpr size_t kReduceLanes = 32;
inline constexpr size_t kReduceBlock = 512;
// lanes[32] = the lanes of one block of at most 512 elements of f32 or bf16.
using ReduceBlockFn = void (*)(const void* from, size_t n, float* lanes);
// Reduces `rows` rows of n (at most 512) elements each.
using ReduceRowsFn = void (*)(const void* from, size_t rows, size_t n, float* to);
// The same order for columns: combines n elements (`first`: of a block) of each of at most 128 columns into
// lanes[32][column_pitch(columns)]. Element i of column j lies at from + i * stride + j elements; calls that continue a block
// begin at a multiple of 32.
inline constexpr size_t kReduceColumns = 128;
constexpr size_t column_pitch(size_t columns) { return (columns + 15) / 16 * 16; }
using ReduceColumnsFn = void (*)(const std::byte* from, int64_t stride, size_t n, size_t columns, bool first, float* lanes);

// to[i] = mask[i] ? a[i] : b[i]
using SelectFn = void (*)(void* to, const uint8_t* mask, const void* a, const void* b, size_t n);
// to[c][r] = from[r][c]; strides in bytes between rows, elements within a row dense
using TransposeFn = void (*)(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride, size_t rows,
                             size_t columns);

// Stores that bypass the caches, complete when the function returns. Worth it from kStreamBytes on.
using StreamCopyFn = void (*)(void* to, const void* from, size_t bytes);
using StreamFillFn = void (*)(void* to, const void* element, size_t size, size_t bytes);  // size: 1, 2, 4, 8 or 16
inline constexpr size_t kStreamBytes = size_t{8} << 20;

// One operation of gpsimd_kernel on n register values of a kernel type.
using RegisterFn = void (*)(void* to, const void* a, const void* b, const void* c, size_t n);
inline constexpr int kKernelOps = static_cast<int>(isa::KernelOp::bitcast) + 1;
inline constexpr int kKernelTypes = static_cast<int>(isa::KernelType::f64) + 1;

struct Simd {
  const char* target = "";
  BinaryFn<float> f32[kAluOps] = {};
  BinaryFn<uint32_t> i32[kAluOps] = {};  // on 32-bit integers that wrap, read as signed
  BinaryFn<uint32_t> u32[kAluOps] = {};  // and as unsigned
  MixedFn mixed[kAluOps][kMixedForms] = {};  // the frequent operations
  UnaryFn act[kActFns] = {};
  UnaryFn negate = nullptr;
  ReduceBlockFn reduce_block[kAluOps] = {}, reduce_block_bf16[kAluOps] = {};
  ReduceRowsFn reduce_rows[kAluOps] = {}, reduce_rows_bf16[kAluOps] = {};
  ReduceColumnsFn reduce_columns[kAluOps] = {}, reduce_columns_bf16[kAluOps] = {};
  ConvertFn convert[kDTypes][kDTypes] = {};  // the frequent pairs; see convert_fn
  SelectFn select[4] = {};        // element sizes 1, 2, 4, 8
  TransposeFn transpose[4] = {};  // element sizes 1, 2, 4, 8
  StreamCopyFn stream_copy = nullptr;
  StreamFillFn stream_fill = nullptr;
  RegisterFn registers[kKernelOps][kKernelTypes] = {};  // elementary functions excepted
  Matmul matmul;
  Matmul matmul_bf16;  // for two operands of bf16, where numerics need not be exact
};

// The table in use.
const Simd& simd();
// For tests: chooses the table of a target ("baseline", "AVX2", ...), "" for the best one. Executables made before keep theirs.
void use_simd_target(std::string_view name);

// OPENTRN_NUMERICS=exact: the same bits on every host; read once. Otherwise a matmul of bf16 may add its products in pairs.
bool exact_numerics();

// One function per file of vector code, each filling its part.
void fill_elementwise(Simd& table);
void fill_activation(Simd& table);
void fill_reduce(Simd& table);
void fill_transpose(Simd& table);
void fill_registers(Simd& table);
void fill_stream(Simd& table);
void fill_matmul(Simd& table);
void fill_matmul_bf16(Simd& table);

}  // namespace opentrn::exec
