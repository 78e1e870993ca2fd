"""Random numbers of `torch.neuron`: one Philox generator per device, 16 bytes of state (seed, offset)."""

from collections.abc import Iterable
from typing import Any

import torch
from opentrn import _torch as _bridge


def _generator(device: Any) -> torch.Generator:
    from opentrn.device import _get_device_index

    return _bridge.default_generator(_get_device_index(device, optional=True))


def get_rng_state(device: Any = "neuron") -> torch.Tensor:
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = "neuron") -> None:
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(i) for i in range(_bridge.device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Seeds the current device."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds all devices."""
    for i in range(_bridge.device_count()):
        _generator(i).manual_seed(int(seed))


def seed() -> int:
    """Seeds the current device from the system's randomness."""
    return _generator(None).seed()


def seed_all() -> int:
    value = seed()
    manual_seed_all(value)
    return value


def initial_seed() -> int:
    return _generator(None).initial_seed()
