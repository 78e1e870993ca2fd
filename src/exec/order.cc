// Instructions of the vector engine that go through a row element by element: scans, batch statistics and the searches
// for the eight largest values.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "exec/operation.h"

namespace opentrn::exec {
namespace {

using isa::AluOp;
using isa::Instruction;

// A source in f32, one whole partition at a time.
class Rows {
 public:
  Rows(const isa::AccessPattern& pattern, const Context& context)
      : operand_(context.operand(pattern)), convert_(convert_fn(operand_.dtype, DType::f32)) {}
  int64_t partitions() const { return operand_.partitions; }
  int64_t length() const { return operand_.free; }
  // Reads all partitions into one dense array, so that a destination in the same place does no harm.
  void read(Frame& frame, int stage, Scratch::Buffer* buffers) const {
    std::vector<std::byte>& all = frame.scratch->stage[stage];
    const auto bytes = static_cast<size_t>(operand_.total * 4);
    if (all.size() < bytes) all.resize(bytes);
    Input input(operand_, operand_.address(frame.registers), convert_, buffers);
    for (int64_t done = 0; done < operand_.total;) {
      const int64_t n = direct_chunk(input.cursor(), std::min(operand_.total - done, kChunk));
      std::memcpy(all.data() + done * 4, input.next(n), static_cast<size_t>(n * 4));
      done += n;
    }
  }
  const float* row(const Frame& frame, int stage, int64_t p) const {
    return reinterpret_cast<const float*>(frame.scratch->stage[stage].data()) + p * operand_.free;
  }

 private:
  Operand operand_;
  ConvertFn convert_;
};

class Scan final : public Operation {
 public:
  Scan(const Instruction& i, const Context& context)
      : dst_(context.operand(i.dst)), src_{context.operand(i.src[0]), context.operand(i.src[1])}, initial_(i.s0, context),
        op0_(simd().f32[static_cast<int>(i.op0)]), op1_(simd().f32[static_cast<int>(i.op1)]),
        multiply_add_(i.op0 == AluOp::mult && i.op1 == AluOp::add) {
    length_ = i.dst.dims.size() > 0 ? i.dst.dims.back().count : 1;
    if (!op0_ || !op1_)
      throw Unsupported("tensor_tensor_scan with " + std::string(isa::name_of(i.op0)) + " and " + std::string(isa::name_of(i.op1)));
    for (int s = 0; s < 2; ++s) from_src_[s] = convert_fn(src_[s].dtype, DType::f32);
    to_dst_ = convert_fn(DType::f32, dst_.dtype);
    if (initial_.is_tile()) from_tile_ = convert_fn(initial_.tile.dtype, DType::f32);
  }

  bool run(Frame& frame) const override {
    if (dst_.total == 0) return true;
    std::byte* dst_at = dst_.address(frame.registers);
    Scratch::Buffer* buffers = frame.scratch->buffer;
    Output output(dst_, dst_at, to_dst_, buffers);
    Staged staged[2];
    Input input[2];
    for (int s = 0; s < 2; ++s) {
      staged[s].operand = &src_[s];
      staged[s].at = src_[s].address(frame.registers);
      stage_if_overlapping(staged[s], dst_, dst_at, frame, s);
      input[s] = Input(*staged[s].operand, staged[s].at, from_src_[s], buffers + 2 + 2 * s);
    }
    const std::byte* tile = initial_.is_tile() ? initial_.tile.address(frame.registers) : nullptr;
    const int64_t per_partition = dst_.free / length_;
    for (int64_t p = 0; p < dst_.partitions; ++p) {
      float initial = static_cast<float>(initial_.value(frame).real);
      if (tile) {
        alignas(8) std::byte element[8];
        std::memcpy(element, tile + p * initial_.tile.partition_stride, static_cast<size_t>(initial_.tile.size));
        if (from_tile_) from_tile_(element, &initial, 1);
        else std::memcpy(&initial, element, 4);
      }
      for (int64_t row = 0; row < per_partition; ++row) {
        float state = initial;
        for (int64_t done = 0; done < length_;) {
          const int64_t n = std::min(length_ - done, kChunk);
          const auto* a = static_cast<const float*>(input[0].next(n));
          const auto* b = static_cast<const float*>(input[1].next(n));
          auto* to = static_cast<float*>(output.begin(n));
          if (multiply_add_) {
            for (int64_t k = 0; k < n; ++k) to[k] = state = a[k] * state + b[k];
          } else {
            for (int64_t k = 0; k < n; ++k) {
              float between;
              op0_(&between, a + k, &state, 1, Form::rows);
              op1_(&state, &between, b + k, 1, Form::rows);
              to[k] = state;
            }
          }
          output.done(n);
          done += n;
        }
      }
    }
    return true;
  }

 private:
  Operand dst_, src_[2];
  ScalarOperand initial_;
  BinaryFn<float> op0_, op1_;
  bool multiply_add_;
  int64_t length_ = 1;
  ConvertFn from_src_[2], to_dst_, from_tile_ = nullptr;
};

// Base of the instructions with f32 source rows and a few results per partition.
class RowOperation : public Operation {
 public:
  RowOperation(const Instruction& i, const Context& context, DType result)
      : dst_(context.operand(i.dst)), to_dst_(result == dst_.dtype ? nullptr : convert_fn(result, dst_.dtype)) {
    for (const isa::AccessPattern& pattern : i.src) sources_.emplace_back(pattern, context);
  }

 protected:
  void read(Frame& frame) const {
    for (size_t s = 0; s < sources_.size(); ++s) sources_[s].read(frame, static_cast<int>(s), frame.scratch->buffer);
  }
  Output output(Frame& frame) const { return {dst_, dst_.address(frame.registers), to_dst_, frame.scratch->buffer}; }

  Operand dst_;
  ConvertFn to_dst_;
  std::vector<Rows> sources_;
};

// (count, mean, count * variance) of the even elements, then of the odd ones.
class BatchStatistics final : public RowOperation {
 public:
  BatchStatistics(const Instruction& i, const Context& context) : RowOperation(i, context, DType::f32) {}

  bool run(Frame& frame) const override {
    read(frame);
    Output out = output(frame);
    const int64_t n = sources_[0].length();
    for (int64_t p = 0; p < dst_.partitions; ++p) {
      const float* x = sources_[0].row(frame, 0, p);
      auto* to = static_cast<float*>(out.begin(6));
      for (int64_t half = 0; half < 2; ++half) {
        double sum = 0, squares = 0;
        int64_t count = 0;
        for (int64_t k = half; k < n; k += 2, ++count) sum += x[k];
        const double mean = count ? sum / static_cast<double>(count) : 0;
        for (int64_t k = half; k < n; k += 2) squares += (x[k] - mean) * (x[k] - mean);
        to[half * 3] = static_cast<float>(count);
        to[half * 3 + 1] = static_cast<float>(mean);
        to[half * 3 + 2] = static_cast<float>(squares);
      }
      out.done(6);
    }
    return true;
  }
};

class BatchAggregate final : public RowOperation {
 public:
  BatchAggregate(const Instruction& i, const Context& context) : RowOperation(i, context, DType::f32) {}

  bool run(Frame& frame) const override {
    read(frame);
    Output out = output(frame);
    const int64_t triples = sources_[0].length() / 3;
    for (int64_t p = 0; p < dst_.partitions; ++p) {
      const float* x = sources_[0].row(frame, 0, p);
      double count = 0, sum = 0, squares = 0;
      for (int64_t t = 0; t < triples; ++t) {
        count += x[3 * t];
        sum += static_cast<double>(x[3 * t]) * x[3 * t + 1];
      }
      const double mean = sum / count;
      for (int64_t t = 0; t < triples; ++t) {
        const double distance = x[3 * t + 1] - mean;
        squares += x[3 * t + 2] + x[3 * t] * distance * distance;
      }
      auto* to = static_cast<float*>(out.begin(2));
      to[0] = static_cast<float>(mean);
      to[1] = static_cast<float>(squares / count);
      out.done(2);
    }
    return true;
  }
};

// NaN counts as the largest value, as in PyTorch's topk.
bool greater(float a, float b) { return a > b || (a != a && b == b); }
bool same(float a, float b) { return a == b || (a != a && b != b); }

class Max8 final : public RowOperation {
 public:
  Max8(const Instruction& i, const Context& context) : RowOperation(i, context, DType::f32) {}

  bool run(Frame& frame) const override {
    read(frame);
    Output out = output(frame);
    const int64_t n = sources_[0].length();
    for (int64_t p = 0; p < dst_.partitions; ++p) {
      const float* x = sources_[0].row(frame, 0, p);
      float top[8];
      std::fill_n(top, 8, -INFINITY);
      int filled = 0;
      for (int64_t k = 0; k < n; ++k) {
        if (filled == 8 && !greater(x[k], top[7])) continue;
        int at = filled < 8 ? filled++ : 7;
        for (; at > 0 && greater(x[k], top[at - 1]); --at) top[at] = top[at - 1];
        top[at] = x[k];
      }
      std::copy_n(top, 8, static_cast<float*>(out.begin(8)));
      out.done(8);
    }
    return true;
  }
};

class FindIndex8 final : public RowOperation {
 public:
  FindIndex8(const Instruction& i, const Context& context) : RowOperation(i, context, DType::u32) {}

  bool run(Frame& frame) const override {
    read(frame);
    Output out = output(frame);
    const int64_t n = sources_[0].length();
    for (int64_t p = 0; p < dst_.partitions; ++p) {
      const float* x = sources_[0].row(frame, 0, p);
      const float* values = sources_[1].row(frame, 1, p);
      auto* to = static_cast<uint32_t*>(out.begin(8));
      for (int v = 0; v < 8; ++v) {
        int64_t start = 0;  // equal values: behind the one found before
        for (int w = 0; w < v; ++w)
          if (same(values[w], values[v]) && to[w] != UINT32_MAX) start = static_cast<int64_t>(to[w]) + 1;
        int64_t k = start;
        while (k < n && !same(x[k], values[v])) ++k;
        to[v] = k < n ? static_cast<uint32_t>(k) : UINT32_MAX;
      }
      out.done(8);
    }
    return true;
  }
};

class MatchReplace8 final : public RowOperation {
 public:
  MatchReplace8(const Instruction& i, const Context& context) : RowOperation(i, context, DType::f32), value_(i.s0, context) {}

  bool run(Frame& frame) const override {
    read(frame);
    Output out = output(frame);
    const float replacement = static_cast<float>(value_.value(frame).real);
    const int64_t n = sources_[0].length();
    for (int64_t p = 0; p < dst_.partitions; ++p) {
      const float* x = sources_[0].row(frame, 0, p);
      const float* values = sources_[1].row(frame, 1, p);
      std::array<bool, 8> used{};
      for (int64_t done = 0; done < n;) {
        const int64_t m = std::min(n - done, kChunk);
        auto* to = static_cast<float*>(out.begin(m));
        for (int64_t k = 0; k < m; ++k) {
          to[k] = x[done + k];
          for (size_t v = 0; v < 8; ++v) {
            if (used[v] || !same(values[v], x[done + k])) continue;
            used[v] = true;
            to[k] = replacement;
            break;
          }
        }
        out.done(m);
        done += m;
      }
    }
    return true;
  }

 private:
  ScalarOperand value_;
};

}  // namespace

std::unique_ptr<Operation> make_scan(const Instruction& i, const Context& context) {
  return std::make_unique<Scan>(i, context);
}
std::unique_ptr<Operation> make_bn_stats(const Instruction& i, const Context& context) {
  return std::make_unique<BatchStatistics>(i, context);
}
std::unique_ptr<Operation> make_bn_aggr(const Instruction& i, const Context& context) {
  return std::make_unique<BatchAggregate>(i, context);
}
std::unique_ptr<Operation> make_max8(const Instruction& i, const Context& context) {
  return std::make_unique<Max8>(i, context);
}
std::unique_ptr<Operation> make_find_index8(const Instruction& i, const Context& context) {
  return std::make_unique<FindIndex8>(i, context);
}
std::unique_ptr<Operation> make_match_replace8(const Instruction& i, const Context& context) {
  return std::make_unique<MatchReplace8>(i, context);
}

}  // namespace opentrn::exec
