// The device's random number generator: a Philox seed and an offset, 16 bytes of state in CUDA's layout.
#pragma once

#include <ATen/core/Generator.h>

#include <memory>

namespace opentrn::bridge {

class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  explicit PhiloxGenerator(c10::DeviceIndex device);

  static c10::DeviceType device_type();
  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  // The graph-safe state is shared, not copied: two generators may draw from one sequence.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  struct Draw {
    uint64_t seed = 0, offset = 0;
  };
  // Takes `elements` numbers, rounded up to 4. Locks the generator.
  Draw draw(int64_t elements);

 private:
  struct State {
    uint64_t seed = c10::default_rng_seed_val, offset = 0;
  };
  PhiloxGenerator* clone_impl() const override;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// The device's own generator; does not create the device.
const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);
// The implementation behind an optional generator argument: the device's own when there is none.
// Throws when the generator belongs to another kind of device.
PhiloxGenerator& generator_of(const std::optional<at::Generator>& generator, c10::DeviceIndex device);

}  // namespace opentrn::bridge
