"""The tests run with the CPU fallback as an error, so that none passes by running elsewhere."""

import pytest

torch = pytest.importorskip("torch")

if not hasattr(torch, "neuron"):
    pytest.skip("the device 'neuron' is not registered", allow_module_level=True)

from opentrn import _torch as bridge  # noqa: E402


@pytest.fixture(autouse=True)
def fallback_is_an_error():
    bridge.set_fallback_policy("error")
    torch.neuron.set_device(0)
    torch.manual_seed(0)
    yield
    bridge.set_fallback_policy("error")


@pytest.fixture
def allow_fallback():
    bridge.set_fallback_policy("quiet")
    bridge.clear_fallbacks()
    yield
    bridge.clear_fallbacks()
