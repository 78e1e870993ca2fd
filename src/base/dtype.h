// Element types: every dtype a PyTorch tensor can have, plus the narrow formats of the chip.
// Shared by all layers; knows nothing of chips, graphs or tensors.
#pragma once

#include <cstdint>
#include <string_view>

namespace opentrn {

enum class DType : uint8_t {
  boolean, u8, i8, u16, i16, u32, i32, u64, i64,
  f8e4m3fn, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, f8e8m0fnu, f8e4m3, f4e2m1x2,
  f16, bf16, f32, f64,
  c32, c64, c128,
};

// Size of one element in bytes (f4e2m1x2 holds two values in one byte).
int64_t size_of(DType dtype);

// Short name as printed in graphs and programs: "bool", "i64", "bf16", ...
std::string_view name_of(DType dtype);

// Inverse of name_of; also accepts PyTorch's spelling ("float32", "bfloat16", "int64").
// Throws UserError when the name is unknown.
DType parse_dtype(std::string_view name);

bool is_float(DType dtype);    // real floating point, narrow formats included
bool is_integer(DType dtype);  // signed and unsigned integers, not bool
bool is_signed(DType dtype);   // signed integers and floats
bool is_complex(DType dtype);

}  // namespace opentrn
