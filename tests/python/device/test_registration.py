"""The device as PyTorch sees it: names, modules, devices, streams, events, memory, random state."""

import copy
import io
import pickle
import signal
import subprocess
import sys

import pytest

import torch
from torch import nn

DEVICE = "neuron"


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    import os

    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=os.environ | environment
    )


def test_the_device_needs_no_import():
    assert torch.neuron.is_available()
    assert torch.accelerator.current_accelerator().type == DEVICE
    assert torch.neuron.get_device_properties().name in ("trn1", "trn2", "trn3")
    assert torch.neuron.get_device_properties().total_memory > 2**30
    assert torch.ones(2, device=DEVICE).is_neuron
    assert torch.ones(2).neuron().device == torch.device(DEVICE, 0)
    assert torch.neuron.memory.memory_stats is torch.neuron.memory_stats


def test_torch_neuronx_has_the_names_scripts_import():
    import torch_neuronx

    torch_neuronx.clear_op_tracking()
    (torch.ones(3, device=DEVICE) + 1).sum()
    assert "aten::add.Tensor" in torch_neuronx.get_executed_ops()
    assert torch_neuronx.get_fallback_ops() == []
    assert torch_neuronx.device_count() == torch.neuron.device_count()
    with pytest.raises(ValueError, match=r"Invalid device id: 99\. Valid range is 0 to"):
        torch_neuronx.set_device(99)
    with pytest.raises(ValueError, match="Expected neuron device, got cpu"):
        torch_neuronx.set_device("cpu")
    with pytest.raises(ValueError, match="Invalid device specification"):
        torch_neuronx.set_device(1.5)


def test_current_device_and_index():
    assert torch.neuron.current_device() == 0
    with torch.neuron.device(1):
        assert torch.neuron.current_device() == 1
        assert torch.ones(1, device=DEVICE).device.index == 1
    assert torch.neuron.current_device() == 0
    with pytest.raises(RuntimeError, match="Device index 99 is out of range"):
        torch.ones(1, device="neuron:99")


# ---- streams and events -------------------------------------------------------------------------
def test_streams():
    s = torch.neuron.Stream()
    assert s.device == torch.device(DEVICE, 0)
    assert torch.neuron.current_stream() == torch.neuron.default_stream()
    with torch.neuron.stream(s):
        assert torch.neuron.current_stream() == s
        assert torch.accelerator.current_stream() == s
        x = torch.full((4,), 3.0, device=DEVICE)
    assert torch.neuron.current_stream() == torch.neuron.default_stream()
    torch.neuron.current_stream().wait_stream(s)
    assert (x + 1).tolist() == [4.0] * 4
    s.synchronize()
    assert s.query()
    with torch.Stream(DEVICE) as generic:
        assert torch.accelerator.current_stream() == generic


def test_event_times_are_modelled_and_add_up():
    start, middle, end = (torch.neuron.Event(enable_timing=True) for _ in range(3))
    x = torch.ones(512, 512, device=DEVICE)
    start.record()
    x = x + 1
    middle.record()
    x = x @ x
    end.record()
    end.synchronize()
    assert end.query()
    whole = start.elapsed_time(end)
    assert whole > 0
    assert start.elapsed_time(middle) + middle.elapsed_time(end) == pytest.approx(whole)
    with pytest.raises(ValueError, match="must be recorded"):
        torch.neuron.Event(enable_timing=True).elapsed_time(end)
    generic = torch.Event(DEVICE, enable_timing=True)
    generic.record()
    generic.synchronize()


# ---- memory -------------------------------------------------------------------------------------
def test_memory_statistics_in_both_key_styles():
    torch.neuron.synchronize()
    before = torch.neuron.memory_allocated()
    torch.neuron.reset_peak_memory_stats()
    x = torch.empty(1024, 1024, device=DEVICE)
    assert torch.neuron.memory_allocated() - before == 4 * 2**20
    stats = torch.neuron.memory_stats()
    assert stats["allocated_bytes"]["current"] == stats["allocated_bytes.all.current"]
    assert stats["allocated_bytes.all.peak"] == torch.neuron.max_memory_allocated() >= before + 4 * 2**20
    assert torch.accelerator.memory_allocated() == torch.neuron.memory_allocated()
    del x
    assert torch.neuron.memory_allocated() == before
    torch.neuron.empty_cache()
    free, total = torch.neuron.mem_get_info()
    assert 0 < free <= total
    assert "largest tensors" in torch.neuron.memory_summary()


def test_out_of_memory_names_the_holders():
    kept = torch.empty(2**30, dtype=torch.uint8, device=DEVICE)
    with pytest.raises(torch.neuron.OutOfMemoryError, match=r"test_registration\.py"):
        torch.empty(2**40, dtype=torch.uint8, device=DEVICE)
    assert torch.neuron.OutOfMemoryError is torch.OutOfMemoryError
    del kept


def test_pinned_memory():
    x = torch.randn(100, 7)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned()
    moved = pinned.to(DEVICE, non_blocking=True)
    back = torch.empty_like(x).pin_memory()
    back.copy_(moved, non_blocking=True)
    torch.neuron.synchronize()
    assert torch.equal(back, x)


# ---- random numbers -----------------------------------------------------------------------------
def test_random_state_is_16_bytes_and_repeats():
    torch.manual_seed(7)
    state = torch.neuron.get_rng_state()
    assert state.dtype == torch.uint8 and state.numel() == 16
    a = torch.randn(1000, device=DEVICE)
    b = torch.randn(1000, device=DEVICE)
    assert not torch.equal(a, b)
    torch.neuron.set_rng_state(state)
    assert torch.equal(torch.randn(1000, device=DEVICE), a)
    torch.manual_seed(7)
    assert torch.equal(torch.randn(1000, device=DEVICE), a)
    assert abs(a.mean().item()) < 0.15 and abs(a.std().item() - 1) < 0.1
    own = torch.Generator(DEVICE).manual_seed(7)
    assert torch.equal(torch.randn(1000, device=DEVICE, generator=own), a)
    with torch.random.fork_rng(devices=[0], device_type=DEVICE):
        torch.randn(8, device=DEVICE)
    assert len(torch.neuron.get_rng_state_all()) == torch.neuron.device_count()
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(4, device=DEVICE, generator=torch.Generator())


# ---- tensors that survive -----------------------------------------------------------------------
def test_parameters_keep_their_identity():
    m = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3))
    m[1].weight = nn.Parameter(m[0].weight.detach().t().contiguous())
    tied = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    tied[1].weight = tied[0].weight
    before = [id(p) for p in m.parameters()]
    m.to(DEVICE)
    tied.to(DEVICE)
    assert [id(p) for p in m.parameters()] == before
    assert tied[0].weight is tied[1].weight
    p = nn.Parameter(torch.ones(2))
    p.data = torch.zeros(2, device=DEVICE)
    assert p.device.type == DEVICE


def test_serialisation():
    x = torch.randn(3, 4, device=DEVICE)
    buffer = io.BytesIO()
    torch.save({"x": x, "view": x[1]}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer)
    assert loaded["x"].device == x.device and torch.equal(loaded["x"].cpu(), x.cpu())
    loaded["x"][1].fill_(5)
    assert loaded["view"].tolist() == [5.0] * 4
    buffer.seek(0)
    assert torch.load(buffer, map_location="cpu")["x"].device.type == "cpu"
    assert torch.equal(pickle.loads(pickle.dumps(x)).cpu(), x.cpu())
    copied = copy.deepcopy(nn.Linear(2, 3).to(DEVICE))
    assert copied.weight.device.type == DEVICE


def test_a_tensor_goes_through_a_multiprocessing_queue():
    import torch.multiprocessing as mp

    queue = mp.get_context("spawn").SimpleQueue()
    x = torch.arange(6, device=DEVICE).reshape(2, 3).t()
    queue.put(x)
    y = queue.get()
    assert y.device == x.device and y.stride() == x.stride() and torch.equal(y.cpu(), x.cpu())


def test_dlpack_shares_memory():
    x = torch.zeros(4, device=DEVICE)
    y = torch.from_dlpack(x)
    y.fill_(2)
    assert x.tolist() == [2.0] * 4


def test_storages_are_resized():
    x = torch.arange(4.0, device=DEVICE)
    x.resize_(2, 3)
    assert x.flatten()[:4].tolist() == [0, 1, 2, 3]
    storage = x.untyped_storage()
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(24)
    x.fill_(1)
    assert x.sum().item() == 6


# ---- processes ----------------------------------------------------------------------------------
def test_a_forked_child_is_told_to_spawn():
    code = (
        "import os, torch\n"
        "x = torch.ones(1, device='neuron')\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n        torch.ones(1, device='neuron')\n"
        "    except Exception as e:\n        print('CHILD', e, flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0); print('PARENT', x.item())"
    )
    result = run_python(code)
    assert "CHILD" in result.stdout and "spawn" in result.stdout
    assert "PARENT 1.0" in result.stdout


def test_notice_is_one_line_and_can_be_silenced():
    code = "import torch; torch.ones(1, device='neuron')"
    shown = run_python(code, OPENTRN_QUIET="").stderr
    assert shown.count("software model") == 1 and "not AWS software" in shown
    assert "software model" not in run_python(code, OPENTRN_QUIET="1").stderr


def test_autoload_can_be_turned_off():
    code = "import torch; print(hasattr(torch, 'neuron'))"
    assert run_python(code, OPENTRN_AUTOLOAD="0").stdout.strip() == "False"
    code = "import torch_neuronx, torch; print(torch.neuron.device_count() > 0)"
    assert run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.strip() == "True"


def test_an_unknown_variable_warns_once():
    result = run_python("import torch", NEURON_RT_NUMM_CORES="2")
    assert result.stderr.count("NEURON_RT_NUMM_CORES is unknown") == 1


def test_a_segmentation_fault_that_was_sent_ends_the_process():
    done = run_python(
        "import os, signal, torch; torch.ones(2, device='neuron').sum().item(); os.kill(os.getpid(), signal.SIGSEGV)"
    )
    assert done.returncode == -signal.SIGSEGV, done.stderr
