// A matrix multiplication as the compiler's tests describe it: shapes and layouts in, a program out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/kernel_builder.h"
#include "compiler/matmul.h"

namespace opentrn::compiler {

// Dimensions outermost first in memory, as letters of the matrix's own order: "km" of lhs [m, k] is a transposed lhs.
struct MatmulCase {
  std::vector<int64_t> batch;
  int64_t m = 1, n = 1, k = 1;
  DType dtype = DType::bf16, out = DType::bf16;
  bool lhs_transposed = false, rhs_transposed = false, out_transposed = false;
  int64_t gap = 0;        // extra elements at the end of each row in memory
  int64_t step = 1;       // distance of a row's elements
  bool lhs_shared = false, rhs_shared = false;  // one matrix for the whole batch (stride 0)
  bool batch_inside = false;                    // batch is the second dimension in memory: [rows, batch, columns]
  int lnc = 1;
};

inline View matrix_view(int buffer, DType dtype, const MatmulCase& c, int64_t rows, int64_t columns, bool transposed,
                        bool shared) {
  View v;
  v.buffer = buffer;
  v.dtype = dtype;
  v.shape = c.batch;
  v.shape.push_back(rows);
  v.shape.push_back(columns);
  v.strides.assign(v.shape.size(), 0);
  const size_t r = c.batch.size(), col = r + 1;
  const size_t outer = transposed ? col : r, inner = transposed ? r : col;
  v.strides[inner] = c.step;
  int64_t pitch = v.shape[inner] * c.step + c.gap;
  const auto batch = [&] {
    for (size_t d = c.batch.size(); d-- > 0 && !shared;) {
      v.strides[d] = pitch;
      pitch *= c.batch[d];
    }
  };
  if (c.batch_inside) batch();
  v.strides[outer] = pitch;
  pitch *= v.shape[outer];
  if (!c.batch_inside) batch();
  v.offset = c.gap;
  return v;
}

inline int64_t extent(const View& v) {
  int64_t last = v.offset;
  for (size_t d = 0; d < v.shape.size(); ++d) last += (v.shape[d] - 1) * v.strides[d];
  return (last + 1) * size_of(v.dtype);
}

inline Matmul matmul_of(const MatmulCase& c) {
  return {matrix_view(0, c.dtype, c, c.m, c.k, c.lhs_transposed, c.lhs_shared),
          matrix_view(1, c.dtype, c, c.k, c.n, c.rhs_transposed, c.rhs_shared),
          matrix_view(2, c.out, c, c.m, c.n, c.out_transposed, false)};
}

inline std::shared_ptr<isa::Program> program_of(const MatmulCase& c, const spec::Chip& chip) {
  const Matmul matmul = matmul_of(c);
  auto program = std::make_shared<isa::Program>();
  program->name = "matmul";
  program->chip = chip.name;
  program->buffers.push_back({isa::Buffer::Kind::input, "lhs", extent(matmul.lhs)});
  program->buffers.push_back({isa::Buffer::Kind::input, "rhs", extent(matmul.rhs)});
  program->buffers.push_back({isa::Buffer::Kind::output, "out", extent(matmul.out)});
  for (int core = 0; core < c.lnc; ++core) {
    KernelBuilder builder(*program, core, chip);
    emit_matmul(builder, matmul, c.lnc);
    builder.finish();
  }
  return program;
}

}  // namespace opentrn::compiler
