"""Comparisons of device results with a reference."""

from typing import Any

import torch


def neuron_allclose(actual: torch.Tensor, expected: torch.Tensor, rtol: float = 1e-2, atol: float = 1e-5) -> bool:
    return torch.allclose(actual.detach().cpu().float(), expected.detach().cpu().float(), rtol=rtol, atol=atol)


def assert_close(actual: Any, expected: Any, **kwargs: Any) -> None:
    """torch.testing.assert_close with both sides on the CPU."""

    def host(x: Any) -> Any:
        return x.detach().cpu() if isinstance(x, torch.Tensor) else x

    torch.testing.assert_close(host(actual), host(expected), **kwargs)
