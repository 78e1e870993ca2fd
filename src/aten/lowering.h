// The lowering table: each ATen operator becomes graph operations in exactly one place.
//
// The bridge normalises a call (schema defaults filled, in-place and out= mapped to the functional overload, compute
// dtype from result_type, result types from the Meta kernel); a lowering turns it into graph values. A lowering never
// infers a result's dtype or shape: it reads them from `results`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/builder.h"

namespace opentrn::aten {

using graph::Builder;
using graph::Shape;
using graph::Type;
using graph::ValueId;

// One argument of a call, in the order of the operator's schema.
struct Argument {
  enum class Kind : uint8_t {
    none,      // None, or an argument that does not concern the value (layout, device, pin_memory, generator)
    tensor,    // `value`: a parameter, or a 0-d scalar parameter for a 0-dim CPU tensor
    tensors,   // `values`; -1 for None inside the list (index.Tensor)
    number,    // a Scalar: int, float or bool; see Call::number
    integer, real, boolean,
    integers,  // int[] and SymInt[]
    numbers,   // Scalar[] and float[]
    text,
    dtype,
  } kind = Kind::none;
  ValueId value = -1;
  std::vector<ValueId> values;
  int64_t integer = 0;              // integer, boolean, and a number that is an int or bool
  double real = 0;                  // real, and every number
  bool is_real = false;             // number: it was a Python float
  std::vector<int64_t> integers;
  std::vector<double> numbers;
  std::string text;
  std::optional<DType> dtype;
};

class Call {
 public:
  Call(std::string op, Builder& builder) : op(std::move(op)), b(builder) {}

  std::string op;                   // "aten::add.Tensor", always the functional overload
  Builder& b;
  std::vector<Argument> args;
  std::vector<std::string> names;   // argument names of the schema
  DType compute = DType::f32;       // at::result_type of the tensor and number arguments
  std::vector<Type> results;        // from the Meta kernel
  std::vector<bool> wanted;         // per result: output_mask of backward operators; empty: all

  // Argument by schema name; throws InternalError when the schema has no such argument.
  const Argument& arg(std::string_view name) const;
  bool has(std::string_view name) const;          // present and not None
  ValueId tensor(std::string_view name) const;    // as passed
  ValueId tensor_as(std::string_view name, DType dtype) const;  // converted
  std::vector<ValueId> tensors(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double real(std::string_view name);             // real or number, as a constant: specialises it
  bool boolean(std::string_view name) const;
  std::vector<int64_t> integers(std::string_view name) const;
  // A number or real as a 0-d value of `dtype`: a launch argument, so another value needs no other program. A tensor
  // in its place (the lr of _fused_adamw_.tensor_lr) is converted.
  ValueId number(std::string_view name, DType dtype);
  ValueId numbers(std::string_view name, size_t index, DType dtype);
  // Marks the number as part of the key; its value may then decide the graph (pow(x, 2), clamp without min).
  double specialise(std::string_view name);
  // Names of the numbers and reals whose value this graph depends on: it holds for exactly these values, and for any
  // value of the others. Which names these are may itself depend on the values (alpha only when it is 1).
  const std::vector<std::string>& specialised() const { return specialised_; }

  // Every scalar that this call added to the graph, in the order of Graph::scalars: `number` and `numbers` (argument
  // and, of a list, element), and the seed and offset that `philox` asked for. The scalar's dtype says how a Python
  // number is passed: a float for an integer scalar is truncated.
  struct NumberUse {
    static constexpr int kSeed = -1, kOffset = -2;
    int argument = 0;  // index into args, kSeed or kOffset
    int element = -1;  // kOffset: numbers drawn before by the same call, to be added (-1: none)
  };
  const std::vector<NumberUse>& number_uses() const { return number_uses_; }

  // Random numbers: seed and offset as 0-d i64 launch arguments, filled by the bridge from the device's generator,
  // whose offset advances by philox_elements() rounded up to 4.
  std::pair<ValueId, ValueId> philox(int64_t elements);
  int64_t philox_elements() const { return philox_elements_; }

  // Conveniences
  Type& result_type(size_t i = 0) { return results[i]; }
  ValueId to_result(ValueId x, size_t i = 0);     // converted and broadcast to the i-th result's type
  ValueId shaped(ValueId x, size_t i = 0);        // converted and reshaped to the i-th result's type
  bool wants(size_t i) const { return i >= wanted.size() || wanted[i]; }
  int64_t wrap(int64_t dim, size_t rank) const { return dim < 0 ? dim + static_cast<int64_t>(rank ? rank : 1) : dim; }

 private:
  struct Launch {
    NumberUse use;
    DType dtype;
    ValueId value;
  };
  size_t position(std::string_view name) const;
  void depend_on(std::string_view name);
  ValueId launch(NumberUse use, DType dtype, const std::string& name);

  std::vector<std::string> specialised_;
  std::vector<NumberUse> number_uses_;
  std::vector<Launch> launches_;  // a number asked for twice is one launch argument
  int64_t philox_elements_ = 0;
};

// An operator that exists only in place (aten::_fused_adamw_, aten::_index_put_impl_, aten::_amp_update_scale_) has its
// own name in the table. Its values, described by `results`, are what it returns beside its mutated arguments, then the
// new values of every argument that the schema marks as mutated, in schema order, lists flattened; -1 where the
// operator leaves an argument as it is (grads of _fused_adamw_ without grad_scale). A returned alias of a mutated
// argument is not repeated. aten::native_batch_norm counts as mutating running_mean and running_var when training.
struct Entry {
  std::string_view op;              // "aten::add.Tensor": functional overload without "out"
  std::vector<ValueId> (*lower)(Call&) = nullptr;  // one value per result (-1 for a result that is not wanted)
};

// The entry of an operator, nullptr if the table has none. Throws nothing.
const Entry* find(std::string_view op);
// All entries, sorted by name.
const std::vector<Entry>& table();

}  // namespace opentrn::aten
