#include "torch/prepared.h"

#include <algorithm>
#include <mutex>

#include "torch/copy.h"
#include "torch/device.h"
#include "torch/generator.h"
#include "torch/storage.h"

namespace opentrn::bridge {
namespace {

bool same(const std::vector<uint64_t>& a, const c10::SmallVectorImpl<uint64_t>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(uint64_t)) == 0;
}

// Appends the mask and the specialised numbers' values to the key; returns the key's length before.
size_t specialise(Operands& operands, uint64_t mask) {
  size_t before = operands.key.size();
  if (mask) {
    operands.key.push_back(mask);
    for (const Operands::NumberValue& number : operands.number_values)
      if (mask >> number.argument & 1) operands.key.push_back(number.bits);
  }
  return before;
}

}  // namespace

const PreparedTable::Slot* PreparedTable::look_up(const Operands& operands, uint64_t hash) const {
  size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (!slot.prepared) return nullptr;
    if (slot.hash == hash && same(slot.key, operands.key)) return &slot;
  }
}

std::shared_ptr<const Prepared> PreparedTable::find(Operands& operands) const {
  std::lock_guard guard(lock_);
  if (slots_.empty()) return nullptr;
  for (uint64_t specialised : masks_) {
    size_t before = specialise(operands, specialised);
    const Slot* slot = look_up(operands, hash_key(operands.key));
    operands.key.resize(before);
    if (slot) return slot->prepared;
  }
  return nullptr;
}

void PreparedTable::insert(Operands& operands, uint64_t specialised, std::shared_ptr<const Prepared> prepared) {
  std::lock_guard guard(lock_);
  if (used_ >= kMostEntries) {
    slots_.clear();
    used_ = 0;
  }
  if (std::find(masks_.begin(), masks_.end(), specialised) == masks_.end()) {
    if (masks_.size() >= kMostMasks) specialised = ~0ull;
    if (std::find(masks_.begin(), masks_.end(), specialised) == masks_.end()) masks_.push_back(specialised);
  }
  if (slots_.size() < 2 * (used_ + 1)) {
    std::vector<Slot> old = std::move(slots_);
    slots_ = std::vector<Slot>(std::max<size_t>(16, old.size() * 2));
    for (Slot& slot : old) {
      if (!slot.prepared) continue;
      size_t mask = slots_.size() - 1, i = slot.hash & mask;
      while (slots_[i].prepared) i = (i + 1) & mask;
      slots_[i] = std::move(slot);
    }
  }
  size_t before = specialise(operands, specialised);
  uint64_t hash = hash_key(operands.key);
  if (!look_up(operands, hash)) {
    size_t mask = slots_.size() - 1, i = hash & mask;
    while (slots_[i].prepared) i = (i + 1) & mask;
    slots_[i] = {hash, {operands.key.begin(), operands.key.end()}, std::move(prepared)};
    ++used_;
  }
  operands.key.resize(before);
}

void PreparedTable::clear() {
  std::lock_guard guard(lock_);
  slots_.clear();
  used_ = 0;
}

size_t PreparedTable::size() const {
  std::lock_guard guard(lock_);
  return used_;
}

void launch(const Prepared& prepared, const Operands& operands, int32_t origin,
            c10::SmallVectorImpl<at::Tensor>& results) {
  for (const Prepared::Resize& resize : prepared.resizes)
    resize_tensor(*operands.tensors[resize.tensor], resize.sizes, resize.strides);

  for (const Prepared::Output& output : prepared.outputs) {
    if (!output.defined) {
      results.emplace_back();
    } else if (output.contiguous) {
      results.push_back(make_contiguous(operands.device, output.sizes, output.dtype, origin));
    } else {
      results.push_back(make_tensor(operands.device, output.sizes, output.strides, output.dtype, origin));
    }
  }

  if (prepared.kernel) {
    c10::SmallVector<void*, 16> buffers;
    for (const Prepared::Buffer& buffer : prepared.buffers) {
      buffers.push_back(buffer.output ? address_of(*results[buffer.index].unsafeGetTensorImpl())
                                      : address_of(*operands.tensors[buffer.index]));
    }
    PhiloxGenerator::Draw draw;
    if (prepared.philox_elements) {
      std::optional<at::Generator> generator;
      if (operands.generator) generator = operands.generator->toGenerator();
      draw = generator_of(generator, static_cast<c10::DeviceIndex>(operands.device)).draw(prepared.philox_elements);
    }
    c10::SmallVector<exec::ScalarValue, 16> scalars;
    for (const Prepared::Scalar& scalar : prepared.scalars) {
      switch (scalar.from) {
        case Prepared::Scalar::From::number: scalars.push_back(operands.numbers[scalar.index]); break;
        case Prepared::Scalar::From::constant:
          scalars.push_back({exec::ScalarValue::Kind::integer, static_cast<double>(scalar.value), scalar.value});
          break;
        case Prepared::Scalar::From::seed:
          scalars.push_back({exec::ScalarValue::Kind::integer, 0, static_cast<int64_t>(draw.seed)});
          break;
        case Prepared::Scalar::From::offset:
          scalars.push_back({exec::ScalarValue::Kind::integer, 0, static_cast<int64_t>(draw.offset) + scalar.value});
          break;
      }
    }
    runtime::LaunchArguments arguments;
    arguments.buffers = {buffers.data(), buffers.size()};
    arguments.scalars = {scalars.data(), scalars.size()};
    arguments.origin = origin;
    device(operands.device).launch(current_stream(operands.device), prepared.kernel, arguments);
  }

  for (const Prepared::WriteBack& back : prepared.write_backs)
    copy_on_device(*operands.tensors[back.tensor], *results[back.output].unsafeGetTensorImpl(), origin);
}

}  // namespace opentrn::bridge
