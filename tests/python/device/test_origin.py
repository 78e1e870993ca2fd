"""Each launch knows the Python line that asked for it, backward launches the forward's."""

import inspect

from opentrn import _torch as bridge

import torch

DEVICE = "neuron"


def origins_of(run) -> list[dict]:
    bridge.set_recording("all")
    bridge.mark_step()
    known = len(bridge.launch_records())
    run()
    torch.neuron.synchronize()
    records = bridge.launch_records()[known:]
    bridge.set_recording("off")
    return [bridge.origin(r["origin"]) for r in records if r["kind"] == 0]


def test_a_launch_names_its_line():
    x = torch.ones(3, device=DEVICE)
    line = inspect.currentframe().f_lineno + 1
    found = origins_of(lambda: x + 1)
    assert [(o["line"], o["backward"]) for o in found] == [(line, False)]
    assert found[0]["file"].endswith("test_origin.py")


def test_backward_launches_carry_the_forwards_line():
    x = torch.ones(3, 3, device=DEVICE, requires_grad=True)
    line = inspect.currentframe().f_lineno + 1
    y = (x @ x).sum()
    found = origins_of(y.backward)
    assert found and all(o["file"].endswith("test_origin.py") for o in found)
    assert any(o["line"] == line and o["backward"] for o in found)


def test_frames_inside_torch_are_skipped():
    m = torch.nn.Linear(3, 3).to(DEVICE)
    x = torch.ones(2, 3, device=DEVICE)
    found = origins_of(lambda: m(x))
    assert found and all(o["file"].endswith("test_origin.py") for o in found)
