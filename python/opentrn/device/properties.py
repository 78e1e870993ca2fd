"""What `torch.neuron.get_device_properties` returns."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceProperties:
    """One logical NeuronCore. `name` is the chip, `total_memory` its share of HBM in bytes."""

    name: str
    total_memory: int
    lnc: int
    physical_cores: int

    @property
    def multi_processor_count(self) -> int:
        return self.physical_cores
