#include "torch/generator.h"

#include <ATen/Utils.h>
#include <ATen/ops/empty.h>

#include "torch/device.h"

namespace opentrn::bridge {

PhiloxGenerator::PhiloxGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(torch_device(device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

c10::DeviceType PhiloxGenerator::device_type() { return kNeuron; }

void PhiloxGenerator::set_current_seed(uint64_t seed) { *state_ = {seed, 0}; }
void PhiloxGenerator::set_offset(uint64_t offset) { state_->offset = offset; }
uint64_t PhiloxGenerator::get_offset() const { return state_->offset; }
uint64_t PhiloxGenerator::current_seed() const { return state_->seed; }

uint64_t PhiloxGenerator::seed() {
  uint64_t random = c10::detail::getNonDeterministicRandom();
  set_current_seed(random);
  return random;
}

c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  at::Tensor bytes = at::detail::empty_cpu({16}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &state_->seed, 8);
  std::memcpy(static_cast<char*>(bytes.mutable_data_ptr()) + 8, &state_->offset, 8);
  return bytes.getIntrusivePtr();
}

void PhiloxGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == 16, "RNG state of a neuron generator has 16 bytes (seed, offset), got ", state.numel());
  const char* bytes = static_cast<const char*>(state.data());
  std::memcpy(&state_->seed, bytes, 8);
  std::memcpy(&state_->offset, bytes + 8, 8);
}

void PhiloxGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  auto other = c10::dynamic_intrusive_pointer_cast<PhiloxGenerator>(state);
  TORCH_CHECK(other, "Expected the state of a neuron generator");
  state_ = other->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> PhiloxGenerator::graphsafe_get_state() const {
  auto result = c10::make_intrusive<PhiloxGenerator>(device_.index());
  result->state_ = state_;
  return result;
}

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  auto* copy = new PhiloxGenerator(device_.index());
  *copy->state_ = *state_;
  return copy;
}

PhiloxGenerator::Draw PhiloxGenerator::draw(int64_t elements) {
  std::lock_guard lock(mutex_);
  Draw result{state_->seed, state_->offset};
  state_->offset += static_cast<uint64_t>((elements + 3) / 4 * 4);
  return result;
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static const auto* generators = [] {
    auto* all = new std::vector<at::Generator>;
    for (int i = 0; i < std::max(device_count(), 1); ++i)
      all->push_back(at::make_generator<PhiloxGenerator>(static_cast<c10::DeviceIndex>(i)));
    return all;
  }();
  int i = index < 0 ? current_device() : index;
  TORCH_CHECK(i < static_cast<int>(generators->size()), "Device index ", i, " is out of range. Valid range is 0 to ",
              generators->size() - 1, " for this process.");
  return (*generators)[i];
}

at::Generator new_generator(c10::DeviceIndex index) {
  return at::make_generator<PhiloxGenerator>(index < 0 ? static_cast<c10::DeviceIndex>(current_device()) : index);
}

PhiloxGenerator& generator_of(const std::optional<at::Generator>& generator, c10::DeviceIndex index) {
  if (!generator || !generator->defined())
    return *static_cast<PhiloxGenerator*>(default_generator(index).unsafeGetGeneratorImpl());
  TORCH_CHECK(generator->device().type() == kNeuron, "Expected a 'neuron' device type for generator but found '",
              generator->device().type(), "'");
  return *static_cast<PhiloxGenerator*>(generator->unsafeGetGeneratorImpl());
}

}  // namespace opentrn::bridge
