#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "aten/lowering.h"
#include "base/error.h"
#include "graph/infer.h"

namespace opentrn::aten {
namespace {

// The launch-argument dtype that holds every value of `dtype`.
DType launch_dtype(DType dtype) {
  if (dtype == DType::f64) return DType::f64;
  if (is_float(dtype)) return DType::f32;
  if (is_complex(dtype)) throw Unsupported("complex numbers as launch arguments");
  if (dtype == DType::i64 || dtype == DType::u64 || dtype == DType::u32) return DType::i64;
  return DType::i32;
}

bool is_number(const Argument& a) {
  using Kind = Argument::Kind;
  return a.kind == Kind::number || a.kind == Kind::real || a.kind == Kind::integer || a.kind == Kind::boolean;
}

}  // namespace

size_t Call::position(std::string_view name) const {
  auto it = std::find(names.begin(), names.end(), name);
  if (it == names.end())
    throw InternalError(fmt::format("{} has no argument '{}'; it has {}", op, name, fmt::join(names, ", ")));
  return static_cast<size_t>(it - names.begin());
}

const Argument& Call::arg(std::string_view name) const { return args.at(position(name)); }

bool Call::has(std::string_view name) const {
  auto it = std::find(names.begin(), names.end(), name);
  return it != names.end() && args.at(static_cast<size_t>(it - names.begin())).kind != Argument::Kind::none;
}

ValueId Call::tensor(std::string_view name) const {
  const Argument& a = arg(name);
  if (a.kind != Argument::Kind::tensor) throw InternalError(fmt::format("{}: argument '{}' is no tensor", op, name));
  return a.value;
}

ValueId Call::tensor_as(std::string_view name, DType dtype) const { return b.convert(tensor(name), dtype); }

std::vector<ValueId> Call::tensors(std::string_view name) const {
  const Argument& a = arg(name);
  if (a.kind == Argument::Kind::none) return {};
  if (a.kind != Argument::Kind::tensors) throw InternalError(fmt::format("{}: argument '{}' is no tensor list", op, name));
  return a.values;
}

int64_t Call::integer(std::string_view name) const {
  const Argument& a = arg(name);
  if (a.kind != Argument::Kind::integer && a.kind != Argument::Kind::boolean)
    throw InternalError(fmt::format("{}: argument '{}' is no integer", op, name));
  return a.integer;
}

double Call::real(std::string_view name) { return specialise(name); }

bool Call::boolean(std::string_view name) const {
  const Argument& a = arg(name);
  return a.kind != Argument::Kind::none && a.integer != 0;
}

std::vector<int64_t> Call::integers(std::string_view name) const {
  const Argument& a = arg(name);
  if (a.kind == Argument::Kind::none) return {};
  if (a.kind == Argument::Kind::integer) return {a.integer};
  if (a.kind != Argument::Kind::integers) throw InternalError(fmt::format("{}: argument '{}' is no int[]", op, name));
  return a.integers;
}

ValueId Call::launch(NumberUse use, DType dtype, const std::string& name) {
  const DType passed = launch_dtype(dtype);
  for (const Launch& l : launches_)
    if (l.use.argument == use.argument && l.use.element == use.element && l.dtype == passed)
      return b.convert(l.value, dtype);
  const ValueId value = b.scalar(passed, name);
  launches_.push_back({use, passed, value});
  number_uses_.push_back(use);
  return b.convert(value, dtype);
}

ValueId Call::number(std::string_view name, DType dtype) {
  const size_t at = position(name);
  const Argument& a = args.at(at);
  if (a.kind == Argument::Kind::tensor) return b.convert(a.value, dtype);
  if (!is_number(a)) throw InternalError(fmt::format("{}: argument '{}' is no number", op, name));
  return launch({static_cast<int>(at), -1}, dtype, names[at]);
}

ValueId Call::numbers(std::string_view name, size_t index, DType dtype) {
  const size_t at = position(name);
  const Argument& a = args.at(at);
  if (a.kind != Argument::Kind::numbers || index >= a.numbers.size())
    throw InternalError(fmt::format("{}: argument '{}' has no number {}", op, name, index));
  return launch({static_cast<int>(at), static_cast<int>(index)}, dtype, fmt::format("{}[{}]", names[at], index));
}

void Call::depend_on(std::string_view name) {
  if (std::find(specialised_.begin(), specialised_.end(), name) == specialised_.end()) specialised_.emplace_back(name);
}

double Call::specialise(std::string_view name) {
  const Argument& a = arg(name);
  if (!is_number(a)) throw InternalError(fmt::format("{}: argument '{}' is no number", op, name));
  depend_on(name);
  const bool whole = a.kind == Argument::Kind::integer || a.kind == Argument::Kind::boolean;
  return whole ? static_cast<double>(a.integer) : a.real;
}

std::pair<ValueId, ValueId> Call::philox(int64_t elements) {
  const ValueId seed = launch({NumberUse::kSeed, -1}, DType::i64, "seed");
  const int drawn = philox_elements_ ? static_cast<int>(philox_elements_) : -1;
  const ValueId offset = launch({NumberUse::kOffset, drawn}, DType::i64, "offset");
  philox_elements_ += (elements + 3) / 4 * 4;
  return {seed, offset};
}

ValueId Call::to_result(ValueId x, size_t i) {
  const Type& type = results.at(i);
  return b.broadcast(b.convert(x, type.dtype), type.shape);
}

ValueId Call::shaped(ValueId x, size_t i) {
  const Type& type = results.at(i);
  return b.reshape(b.convert(x, type.dtype), type.shape);
}

}  // namespace opentrn::aten
