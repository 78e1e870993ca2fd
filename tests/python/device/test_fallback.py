"""The CPU fallback: counted, named with its line, reported once, an error on demand."""

import warnings

import pytest
from opentrn import _torch as bridge

import torch

DEVICE = "neuron"


def test_a_fallback_is_counted_and_named_with_its_line(allow_fallback):
    x = torch.eye(3, device=DEVICE) * 2
    det = torch.linalg.det(x)
    assert det.device.type == DEVICE and det.item() == 8
    entry = next(e for e in bridge.fallbacks() if e["op"] == "aten::_linalg_det")
    assert entry["count"] == 1
    (line, count) = entry["lines"][0]
    assert "test_fallback.py" in line and count == 1


def test_the_first_call_warns():
    bridge.set_fallback_policy("warn")
    bridge.clear_fallbacks()
    x = torch.eye(3, device=DEVICE)
    with pytest.warns(UserWarning, match=r"aten::_linalg_det.* fell back to CPU.*test_fallback\.py"):
        torch.linalg.det(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.linalg.det(x)


def test_it_can_be_made_an_error():
    with pytest.raises(NotImplementedError, match=r"aten::_linalg_det is not implemented for Neuron.*test_fallback"):
        torch.linalg.det(torch.eye(3, device=DEVICE))


def test_mixed_devices_raise_there_too(allow_fallback):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.linalg.householder_product(torch.eye(3, device=DEVICE), torch.ones(3))


def test_random_operators_follow_the_devices_generator(allow_fallback):
    draws = []
    for _ in range(2):
        torch.neuron.manual_seed(3)
        draws.append(torch.empty(5, device=DEVICE).log_normal_().cpu())
    assert torch.equal(*draws)
    assert not torch.equal(torch.empty(5, device=DEVICE).log_normal_().cpu(), draws[0])
