"""What the commands print."""

import pathlib

import numpy as np
import pytest
from command import ROOT

SCALED_ADD = str(ROOT / "tests" / "text" / "scaled_add.trn")


@pytest.mark.parametrize("command", ["run", "chips", "show", "exec", "trace", "doctor"])
def test_help_has_an_example(opentrn, command):
    outcome = opentrn(command, "--help")
    assert outcome.status == 0
    assert f"Example: opentrn {command}" in outcome.out


def test_chips(opentrn):
    outcome = opentrn("chips")
    assert outcome.status == 0
    for text in ("trn1", "trn2", "trn3", "78.6 TFLOPS", "estimated"):
        assert text in outcome.out
    one = opentrn("chips", "trn2")
    for text in ("dma.", "documented", "GHz"):
        assert text in one.out


def test_exec_computes_and_times(opentrn, tmp_path):
    a = np.random.default_rng(0).standard_normal((1024, 512)).astype(np.float32)
    np.save(tmp_path / "a.npy", a)
    outcome = opentrn(
        "exec",
        SCALED_ADD,
        "-i",
        f"a={tmp_path}/a.npy",
        "-i",
        "b=ones",
        "-s",
        "alpha=3",
        "-o",
        f"out={tmp_path}/out.npy",
        "--timeline",
    )
    assert outcome.status == 0, outcome.err
    assert "verified, no race, no deadlock" in outcome.out
    assert "modelled time" in outcome.out and "vector" in outcome.out and "queue 0" in outcome.out
    np.testing.assert_allclose(
        np.load(tmp_path / "out.npy").reshape(a.shape), a * np.float32(3) + 1, rtol=1e-6, atol=1e-6
    )


def test_exec_is_the_same_every_time(opentrn):
    runs = [opentrn("exec", SCALED_ADD, "-i", "a=rand", "-i", "b=randn", "-s", "alpha=2").out for _ in range(2)]
    assert runs[0] == runs[1]


def test_show_prints_a_program_that_parses_again(opentrn, tmp_path):
    import opentrn._core as core

    outcome = opentrn("show", SCALED_ADD)
    text = outcome.out[: outcome.out.index("modelled time")]
    assert core.Program.parse(text).digest() == core.Program.parse(pathlib.Path(SCALED_ADD).read_text()).digest()


def test_bf16_values_round_to_nearest_even():
    from opentrn.cli import values

    x = np.array([1.0, 1.00390625, 1.01171875, -3.1415927, np.inf, np.nan, 65280.0], np.float32)
    back = values.decode(values.encode(x, "bf16").view(np.uint8), "bf16")
    np.testing.assert_array_equal(back[:2], [1.0, 1.0])
    assert (
        back[2] == 1.015625 and back[3] == -3.140625 and np.isinf(back[4]) and np.isnan(back[5]) and back[6] == 65280.0
    )
