// PyTorch's element types and ours.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <optional>

#include "base/dtype.h"

namespace opentrn::bridge {

inline std::optional<DType> find_dtype(c10::ScalarType type) {
  using c10::ScalarType;
  switch (type) {
    case ScalarType::Bool: return DType::boolean;
    case ScalarType::Byte: return DType::u8;
    case ScalarType::Char: return DType::i8;
    case ScalarType::UInt16: return DType::u16;
    case ScalarType::Short: return DType::i16;
    case ScalarType::UInt32: return DType::u32;
    case ScalarType::Int: return DType::i32;
    case ScalarType::UInt64: return DType::u64;
    case ScalarType::Long: return DType::i64;
    case ScalarType::Float8_e4m3fn: return DType::f8e4m3fn;
    case ScalarType::Float8_e5m2: return DType::f8e5m2;
    case ScalarType::Float8_e4m3fnuz: return DType::f8e4m3fnuz;
    case ScalarType::Float8_e5m2fnuz: return DType::f8e5m2fnuz;
    case ScalarType::Float8_e8m0fnu: return DType::f8e8m0fnu;
    case ScalarType::Float4_e2m1fn_x2: return DType::f4e2m1x2;
    case ScalarType::Half: return DType::f16;
    case ScalarType::BFloat16: return DType::bf16;
    case ScalarType::Float: return DType::f32;
    case ScalarType::Double: return DType::f64;
    case ScalarType::ComplexHalf: return DType::c32;
    case ScalarType::ComplexFloat: return DType::c64;
    case ScalarType::ComplexDouble: return DType::c128;
    default: return std::nullopt;
  }
}

inline bool is_supported(c10::ScalarType type) { return find_dtype(type).has_value(); }

inline DType dtype_of(c10::ScalarType type) {
  auto found = find_dtype(type);
  TORCH_CHECK(found, "neuron tensors cannot have dtype ", type);
  return *found;
}

}  // namespace opentrn::bridge
