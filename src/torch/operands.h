// The operands of one call, read from the dispatcher's stack without copying values: device tensors, numbers that are
// passed at launch, and a binary key of everything that decides the program.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include "exec/interpreter.h"
#include "torch/signature.h"

namespace opentrn::bridge {

// How two operands lie in memory, when at least one of them is written (reads that coincide count too).
enum class Relation : uint8_t { disjoint, identical, overlapping };

struct Operands {
  c10::SmallVector<uint64_t, 96> key;
  c10::SmallVector<c10::TensorImpl*, 16> tensors;       // device tensors in schema order, lists flattened
  c10::SmallVector<exec::ScalarValue, 16> numbers;      // numbers and 0-dim CPU tensors in schema order, flattened
  // Values of the call's numbers, by argument. Those that a lowering specialised are part of its programs' keys.
  struct NumberValue {
    uint64_t argument = 0, bits = 0;
  };
  c10::SmallVector<NumberValue, 16> number_values;
  int device = -1;
  const c10::IValue* generator = nullptr;
  bool complex_number = false;   // a complex Python number: no launch argument can hold it
};

struct OperandRules {
  const char* name = "";                // of the operator, for messages
  bool cpu_scalars = true;              // 0-dim CPU tensors may stand in for device tensors
  uint64_t keyed_numbers = 0;           // bit per argument: its value always belongs to the key (arange)
};

// Reads the last `signature.parameters.size()` entries of the stack.
// Throws what CUDA throws when tensors lie on several devices.
void read_operands(const Signature& signature, const OperandRules& rules, const torch::jit::Stack& stack,
                   Operands& operands);

// The relation of two device tensors.
Relation relation(const c10::TensorImpl& a, const c10::TensorImpl& b);

// Appends dtype, sizes and strides of a tensor to a key.
void append_tensor(c10::SmallVectorImpl<uint64_t>& key, const c10::TensorImpl& tensor);
uint64_t hash_key(const c10::SmallVectorImpl<uint64_t>& key);

// Address of a tensor's first element.
inline void* address_of(const c10::TensorImpl& tensor) {
  const c10::StorageImpl* storage = tensor.unsafe_storage().unsafeGetStorageImpl();
  auto* base = static_cast<char*>(const_cast<void*>(storage->data()));
  return base ? base + tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize()) : nullptr;
}

// The value of a one-element CPU tensor. False for complex.
bool read_cpu_scalar(const c10::TensorImpl& tensor, exec::ScalarValue& value);

}  // namespace opentrn::bridge
