#include "base/dtype.h"

#include <array>
#include <string>
#include <utility>

#include "base/error.h"

namespace opentrn {
namespace {

struct Info {
  std::string_view name, torch_name;
  int8_t size;
  char kind;  // b bool, u unsigned, i signed, f float, c complex
};

constexpr std::array<Info, 24> kInfo = {{
    {"bool", "bool", 1, 'b'},
    {"u8", "uint8", 1, 'u'},
    {"i8", "int8", 1, 'i'},
    {"u16", "uint16", 2, 'u'},
    {"i16", "int16", 2, 'i'},
    {"u32", "uint32", 4, 'u'},
    {"i32", "int32", 4, 'i'},
    {"u64", "uint64", 8, 'u'},
    {"i64", "int64", 8, 'i'},
    {"f8e4m3fn", "float8_e4m3fn", 1, 'f'},
    {"f8e5m2", "float8_e5m2", 1, 'f'},
    {"f8e4m3fnuz", "float8_e4m3fnuz", 1, 'f'},
    {"f8e5m2fnuz", "float8_e5m2fnuz", 1, 'f'},
    {"f8e8m0fnu", "float8_e8m0fnu", 1, 'f'},
    {"f8e4m3", "float8_e4m3", 1, 'f'},
    {"f4e2m1x2", "float4_e2m1fn_x2", 1, 'f'},
    {"f16", "float16", 2, 'f'},
    {"bf16", "bfloat16", 2, 'f'},
    {"f32", "float32", 4, 'f'},
    {"f64", "float64", 8, 'f'},
    {"c32", "complex32", 4, 'c'},
    {"c64", "complex64", 8, 'c'},
    {"c128", "complex128", 16, 'c'},
    {"", "", 0, 0},
}};

const Info& info(DType dtype) { return kInfo[static_cast<size_t>(dtype)]; }

}  // namespace

int64_t size_of(DType dtype) { return info(dtype).size; }
std::string_view name_of(DType dtype) { return info(dtype).name; }

DType parse_dtype(std::string_view name) {
  for (size_t i = 0; i + 1 < kInfo.size(); ++i)
    if (name == kInfo[i].name || name == kInfo[i].torch_name) return static_cast<DType>(i);
  throw UserError("unknown dtype '" + std::string(name) + "'; known: bool, u8, i8, u16, i16, u32, i32, u64, i64, "
                  "f8e4m3fn, f8e5m2, f16, bf16, f32, f64, c64, c128");
}

bool is_float(DType dtype) { return info(dtype).kind == 'f'; }
bool is_integer(DType dtype) { return info(dtype).kind == 'i' || info(dtype).kind == 'u'; }
bool is_signed(DType dtype) { return info(dtype).kind == 'i' || info(dtype).kind == 'f'; }
bool is_complex(DType dtype) { return info(dtype).kind == 'c'; }

}  // namespace opentrn
