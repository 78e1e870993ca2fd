#include "compiler/fused_emitter.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"

namespace opentrn::compiler {

using graph::Op;
using isa::AccessPattern;
using isa::AluOp;
using isa::Dim;
using isa::Engine;
using isa::Memory;
using isa::Opcode;
using isa::Scalar;
using Kind = FusedValue::Kind;

void FusedEmitter::ensure(int v) {
  if (places_[v].form != Place::Form::none) return;
  const FusedValue& x = value(v);
  b_.set_origin(x.origin);
  switch (x.kind) {
    case Kind::view: load(v); return;
    case Kind::scalar:
    case Kind::constant: scalar_tile(v); return;
    case Kind::iota:
    case Kind::random: index_program(v); return;
    case Kind::reduce: throw InternalError("fused kernel: a reduction is used before it is complete");
    case Kind::op: break;
  }
  if (widening(v)) {
    ensure(x.operands[0]);
    places_[v] = places_[x.operands[0]];
    return;
  }
  if (x.op == Op::convert && rounds_into_[x.operands[0]] == v) {
    ensure(x.operands[0]);
    places_[v] = places_[x.operands[0]];
    return;
  }
  if (on_engines(v))
    engine_op(v);
  else
    gpsimd_op(v);
}

Tile FusedEmitter::take(int v) {
  if (pools_[v] < 0) throw InternalError(fmt::format("fused kernel: value {} has no tile", v));
  return b_.take(pools_[v]);
}

void FusedEmitter::load(int v) {
  const FusedValue& x = value(v);
  const int64_t partitions = partitions_for(x.varies);
  const Tile tile = take(v);
  set(v, tile);
  const AccessPattern dst = operand(v, x.varies, partitions);
  const int p = layout_.partition_dim, c = layout_.chunk_dim;
  const bool transpose = layout_.transposed && (x.varies >> p & 1) && (x.varies >> c & 1) && x.strides[p] == 1 &&
                         std::abs(x.strides[c]) != 1 && (size_of(x.dtype) == 2 || size_of(x.dtype) == 4);
  if (!transpose) {
    b_.dma(dst, memory(x.buffer, x.dtype, x.offset, x.strides, x.varies, partitions), kLoad);
    return;
  }
  // Rows of HBM become columns of the tile, at most 512 at a time.
  Index at(x.offset);
  for (size_t d = 0; d < f_.sizes.size(); ++d)
    if (x.strides[d]) at = at + base_[d] * x.strides[d];
  const int64_t count = chunk_count();
  for (int64_t first = 0; first < count; first += 512) {
    const int64_t n = std::min<int64_t>(512, count - first);
    AccessPattern src = b_.hbm(x.buffer, x.dtype, at + first * x.strides[c], n, x.strides[c],
                               SmallVector<Dim, 4>{Dim{1, static_cast<int32_t>(partitions)}});
    b_.dma_transpose(b_.at(tile, x.dtype, partitions, {Dim{1, static_cast<int32_t>(n)}}, first), src, kLoad);
  }
}

Scalar FusedEmitter::scalar_operand(int v) const {
  const FusedValue& x = value(v);
  if (x.kind == Kind::scalar) return Scalar::arg(x.argument);
  return Scalar::imm(is_float(x.dtype) ? x.real : static_cast<double>(x.integer));
}

void FusedEmitter::scalar_tile(int v) {
  const Tile tile = take(v);
  set(v, tile);
  b_.fill(engine_value(v) ? Engine::vector : Engine::gpsimd, operand(v, value(v).varies, partitions_for(value(v).varies)),
          scalar_operand(v));
}

void FusedEmitter::index_program(int v) {
  const FusedValue& x = value(v);
  const int64_t partitions = partitions_for(x.varies);
  const Tile tile = take(v);
  set(v, tile);
  const int kernel =
      b_.kernel(x.kind == Kind::iota ? iota_kernel(x.dtype) : philox_kernel(x.argument, x.second_argument));
  auto& i = b_.gpsimd(kernel, operand(v, x.varies, partitions), {});
  set_index(i, x.offset, x.strides, x.varies);
}

void FusedEmitter::set_index(isa::Instruction& i, int64_t first, const std::vector<int64_t>& strides,
                             uint64_t varies) const {
  Index at(first);
  for (size_t d = 0; d < f_.sizes.size(); ++d)
    if (strides[d]) at = at + base_[d] * strides[d];
  i.s0 = Scalar::imm(static_cast<double>(at.constant()));
  for (const isa::Term& term : at.terms()) i.pattern_terms.push_back(term);
  const int p = layout_.partition_dim;
  i.channel_multiplier = p >= 0 ? strides[p] * layout_.rows : 0;
  for (const Axis& axis : axes())
    if (varies >> axis.dim & 1) i.pattern.push_back({strides[axis.dim], static_cast<int32_t>(axis.count)});
  if (i.pattern.empty()) i.pattern.push_back({0, 1});
}

FusedEmitter::Inner FusedEmitter::inner_of(int v) {
  const FusedValue& x = value(v);
  const bool scalar_first = scalar_form(x.operands[0]);
  Inner inner;
  inner.x = scalar_first ? x.operands[1] : x.operands[0];
  inner.op = *alu_of(x.op);
  inner.scalar = scalar_operand(scalar_first ? x.operands[0] : x.operands[1]);
  inner.reverse = scalar_first;
  ensure(inner.x);
  return inner;
}

bool FusedEmitter::row_scalar(int v, uint64_t varies) const {
  const FusedValue& x = value(v);
  if (scalar_form(v) || places_[v].dtype != DType::f32) return false;
  const int p = layout_.partition_dim;
  const uint64_t bit = p >= 0 ? uint64_t{1} << p : 0;
  if (x.varies & ~bit) return false;
  if (layout_.rows > 1 && (x.varies & bit)) return false;
  return (varies & ~bit) != 0;
}

void FusedEmitter::engine_op(int v) {
  const FusedValue& x = value(v);
  for (int o : x.operands)
    if (!absorbed_[o] && (!scalar_form(o) || pools_[o] >= 0)) ensure(o);
  const int64_t partitions = partitions_for(x.varies);
  auto read = [&](int o) { return operand(o, x.varies, partitions); };
  if (x.operands.size() == 2 && alu_of(x.op)) return binary(v, partitions);
  const int a = x.operands[0];
  const Tile tile = take(v);
  set(v, tile);
  const AccessPattern dst = operand(v, x.varies, partitions);
  if (auto act = activation_of(x.op)) {
    b_.activation(dst, *act, read(a));
  } else if (x.op == Op::convert || x.op == Op::rounded || x.op == Op::bitcast) {
    b_.copy(Engine::vector, dst, read(a));
  } else if (x.op == Op::neg) {
    b_.tensor_scalar(Engine::vector, dst, read(a), AluOp::mult, Scalar::imm(-1));
  } else if (x.op == Op::reciprocal) {
    auto& i = b_.emit(Opcode::reciprocal, Engine::vector);
    i.dst = dst;
    i.src.push_back(read(a));
  } else if (x.op == Op::logical_not || (x.op == Op::bitwise_not && x.dtype == DType::boolean)) {
    b_.tensor_scalar(Engine::vector, dst, read(a), AluOp::is_equal, Scalar::imm(0));
  } else if (x.op == Op::is_nan) {
    b_.tensor_tensor(Engine::vector, dst, read(a), AluOp::not_equal, read(a));
  } else if (x.op == Op::select) {
    auto& i = b_.emit(Opcode::select, Engine::vector);
    i.dst = dst;
    i.src.push_back(read(a));
    i.src.push_back(read(x.operands[1]));
    i.src.push_back(read(x.operands[2]));
  } else if (x.op == Op::clamp && scalar_form(x.operands[1]) && scalar_form(x.operands[2])) {
    b_.tensor_scalar(Engine::vector, dst, read(a), AluOp::max, scalar_operand(x.operands[1]), AluOp::min,
                     scalar_operand(x.operands[2]));
  } else if (x.dtype == DType::boolean &&
             (x.op == Op::bitwise_and || x.op == Op::bitwise_or || x.op == Op::bitwise_xor)) {
    const AluOp op = x.op == Op::bitwise_and  ? AluOp::logical_and
                     : x.op == Op::bitwise_or ? AluOp::logical_or
                                              : AluOp::logical_xor;
    b_.tensor_tensor(Engine::vector, dst, read(a), op, read(x.operands[1]));
  } else {
    run_program(v, dst, partitions);
  }
}

void FusedEmitter::binary(int v, int64_t partitions) {
  const FusedValue& x = value(v);
  const int a = x.operands[0], c = x.operands[1];
  const AluOp op = *alu_of(x.op);
  auto read = [&](int o) { return operand(o, x.varies, partitions); };
  const bool scalar_a = scalar_form(a), scalar_c = scalar_form(c);
  if (scalar_a && scalar_c) {
    // Both are launch values or constants: the first one has a tile.
    const Tile tile = take(v);
    set(v, tile);
    b_.tensor_scalar(Engine::vector, operand(v, x.varies, partitions), read(a), op, scalar_operand(c));
    return;
  }
  if (scalar_a || scalar_c) {
    const int tensor = scalar_a ? c : a;
    const Scalar scalar = scalar_operand(scalar_a ? a : c);
    if (absorbed_[tensor]) {
      const Inner inner = inner_of(tensor);
      const Tile tile = take(v);
      set(v, tile);
      auto& i = b_.tensor_scalar(Engine::vector, operand(v, x.varies, partitions), read(inner.x), inner.op,
                                 inner.scalar, op, scalar);
      i.reverse0 = inner.reverse;
      i.reverse1 = scalar_a;
      return;
    }
    const Tile tile = take(v);
    set(v, tile);
    auto& i = b_.tensor_scalar(Engine::vector, operand(v, x.varies, partitions), read(tensor), op, scalar);
    i.reverse0 = scalar_a;
    return;
  }
  if (absorbed_[a] || absorbed_[c]) {
    const bool first = absorbed_[a];
    const Inner inner = inner_of(first ? a : c);
    const int other = first ? c : a;
    const Tile tile = take(v);
    set(v, tile);
    auto& i = b_.emit(Opcode::scalar_tensor_tensor, Engine::vector);
    i.dst = operand(v, x.varies, partitions);
    i.src.push_back(read(inner.x));
    i.src.push_back(read(other));
    i.op0 = inner.op;
    i.s0 = inner.scalar;
    i.reverse0 = inner.reverse;
    i.op1 = op;
    i.reverse1 = !first;
    return;
  }
  const Tile tile = take(v);
  set(v, tile);
  const AccessPattern dst = operand(v, x.varies, partitions);
  if (row_scalar(c, x.varies) || row_scalar(a, x.varies)) {
    const bool second = row_scalar(c, x.varies);
    const int tensor = second ? a : c, row = second ? c : a;
    auto& i = b_.tensor_scalar(Engine::vector, dst, read(tensor), op,
                               Scalar::of(b_.at(places_[row].tile, DType::f32, partitions, {})));
    i.reverse0 = !second;
    return;
  }
  b_.tensor_tensor(Engine::vector, dst, read(a), op, read(c));
}

void FusedEmitter::gpsimd_op(int v) {
  const FusedValue& x = value(v);
  for (int o : x.operands)
    if (!scalar_form(o)) ensure(o);
  const int64_t partitions = partitions_for(x.varies);
  const Tile tile = take(v);
  set(v, tile);
  run_program(v, operand(v, x.varies, partitions), partitions);
}

void FusedEmitter::run_program(int v, const AccessPattern& dst, int64_t partitions) {
  const FusedValue& x = value(v);
  std::vector<KernelOperand> operands;
  SmallVector<AccessPattern, 3> src;
  for (int o : x.operands) {
    KernelOperand k;
    k.dtype = value(o).dtype;
    if (value(o).kind == Kind::scalar) {
      k.kind = KernelOperand::Kind::argument;
      k.index = value(o).argument;
    } else if (value(o).kind == Kind::constant) {
      k.kind = KernelOperand::Kind::constant;
      k.real = is_float(k.dtype) ? value(o).real : static_cast<double>(value(o).integer);
      k.integer = is_float(k.dtype) ? static_cast<int64_t>(value(o).real) : value(o).integer;
    } else {
      k.index = static_cast<int>(src.size());
      src.push_back(operand(o, x.varies, partitions));
    }
    operands.push_back(k);
  }
  const int kernel = b_.kernel(elementwise_kernel(x.op, x.dtype, operands, static_cast<int>(src.size())));
  auto& i = b_.gpsimd(kernel, dst, {});
  for (const AccessPattern& s : src) i.src.push_back(s);
  if (src.empty() && dst.dims.empty()) i.dst.dims.push_back({1, 1});
}

}  // namespace opentrn::compiler
