// A call prepared once and launched many times: a kernel, where its operands come from and what it returns.
// Prepared calls are kept per operator in a hash table under the binary key of `Operands`.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <vector>

#include "runtime/kernel.h"
#include "runtime/spin_lock.h"
#include "torch/operands.h"

namespace opentrn::bridge {

struct Prepared {
  // A fresh tensor made at every launch.
  struct Output {
    std::vector<int64_t> sizes, strides;
    c10::ScalarType dtype = c10::kFloat;
    bool contiguous = true;
    bool defined = true;  // an unwanted result is an undefined tensor
  };
  // One argument of the program: a device tensor of the call or one of `outputs`.
  struct Buffer {
    bool output = false;
    int32_t index = 0;
  };
  // One launch scalar: a number of the call, a constant, or the generator's seed or offset.
  struct Scalar {
    enum class From : uint8_t { number, constant, seed, offset } from = From::number;
    int32_t index = 0;
    int64_t value = 0;
  };
  // An `out=` tensor whose size has to change first.
  struct Resize {
    int32_t tensor = 0;
    std::vector<int64_t> sizes, strides;
  };
  // A result that could not be written in place: output `output` is copied to tensor `tensor` afterwards.
  struct WriteBack {
    int32_t output = 0, tensor = 0;
  };

  std::shared_ptr<const runtime::Kernel> kernel;  // null: nothing to compute
  std::vector<Output> outputs;
  std::vector<Buffer> buffers;
  std::vector<Scalar> scalars;
  std::vector<Resize> resizes;
  std::vector<WriteBack> write_backs;
  int64_t philox_elements = 0;
  // What the operator returns: lengths of returned lists, -1 for a single tensor; taken from `outputs` in order.
  // Written arguments are returned as they are.
  std::vector<int32_t> returned;
  std::string unsupported;  // not empty: no program can be made; the reason
};

// Open addressing, power-of-two sized. Thread-safe.
//
// A program holds for the exact values of the numbers that its lowering specialised, and for any value of the others.
// Which ones these are is a mask (bit per argument); an entry's key is the operands' key, the mask, and the values of
// the numbers in it. An operator has few masks, which `find` tries in the order in which they appeared.
class PreparedTable {
 public:
  std::shared_ptr<const Prepared> find(Operands& operands) const;
  void insert(Operands& operands, uint64_t specialised, std::shared_ptr<const Prepared> prepared);
  void clear();
  size_t size() const;

 private:
  struct Slot {
    uint64_t hash = 0;
    std::vector<uint64_t> key;
    std::shared_ptr<const Prepared> prepared;  // null: free
  };
  static constexpr size_t kMostEntries = 8192;  // beyond, the table starts anew: shapes that never repeat
  static constexpr size_t kMostMasks = 8;       // beyond, all numbers are specialised
  const Slot* look_up(const Operands& operands, uint64_t hash) const;

  mutable runtime::SpinLock lock_;
  std::vector<Slot> slots_;
  c10::SmallVector<uint64_t, kMostMasks + 1> masks_;
  size_t used_ = 0;
};

// Launches: makes the outputs, collects addresses and numbers, submits the kernel to the current stream.
// `results` receives `outputs.size()` tensors.
void launch(const Prepared& prepared, const Operands& operands, int32_t origin,
            c10::SmallVectorImpl<at::Tensor>& results);

}  // namespace opentrn::bridge
