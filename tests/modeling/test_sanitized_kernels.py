"""The kernels under the address sanitizer: it is on, it would see a write out of bounds, and large calls pass."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from recurrent_cases import OPS, call, random_state, random_weights, results_and_gradients, trained

from hf_metalstm.modeling import compiled_kernels
from hf_metalstm.modeling.compiled_kernels import PaddedBatch, instruction_sets, run_kernel

pytestmark = pytest.mark.skipif(
    os.environ.get("HF_METALSTM_SANITIZED") != "1",
    reason="`make sanitize` runs it with kernels that watch their memory",
)

# A kernel is told that a buffer is larger than it is; the sanitizer must end the process.
OUT_OF_BOUNDS = """
import torch
from hf_metalstm.modeling.compiled_kernels import PaddedBatch, run_kernel
inputs, weights, state = torch.zeros(1, 4, 3), [torch.zeros(8, 3), torch.zeros(8, 2)], torch.zeros(1, 2)
written = [torch.zeros(1, {steps}, 2), torch.zeros(1, 2), torch.zeros(1, 2), None, None]
read = [inputs, torch.zeros(8), state, state]
run_kernel("LSTM_FORWARD", PaddedBatch(1, 4, None, False), (3, 2), weights, read, written)
"""


def test_the_sanitized_kernels_are_those_that_run() -> None:
    assert "sanitized" in compiled_kernels._kernels.__file__


@pytest.mark.parametrize("steps", [4, 3])
def test_a_write_out_of_bounds_ends_the_process(steps: int, tmp_path: Path) -> None:
    # A buffer that is one step short, on the heap like every tensor.
    program = OUT_OF_BOUNDS.format(steps=steps)
    # Elsewhere than in the sources, whose folder would come before that of the sanitized build.
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode == 0) == (steps == 4), done.stderr[-2000:]
    assert ("heap-buffer-overflow" in done.stderr) == (steps == 3)


@pytest.mark.parametrize("name", instruction_sets())
@pytest.mark.parametrize("op", list(OPS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (5, 33, 17, 3), (50, 64, 48, 16), (3, 97, 5, 40)])
def test_no_size_reads_or_writes_elsewhere(
    name: str, op: str, dtype: torch.dtype, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_METALSTM_INSTRUCTION_SET", name)
    monkeypatch.setattr(compiled_kernels, "_LEAST_WORK_OF_THREAD", 1)
    d, h, m, z = sizes
    for batch, steps, threads in ((1, 1, 1), (7, 5, 1), (37, 4, 2), (9, 130, 1)):
        torch.set_num_threads(threads)
        weights, state = (
            trained(part) for part in (random_weights(op, d, h, m, z, dtype), random_state(op, batch, h, m, dtype))
        )
        inputs = torch.randn(batch, steps, d, dtype=dtype).requires_grad_()
        for lengths in (None, torch.randint(1, steps + 1, (batch,))):
            results_and_gradients("cpp", op, inputs, weights, lengths, state, True)
            with torch.no_grad():
                call(op, inputs, weights, lengths)
    torch.set_num_threads(1)


def test_short_lengths_buffers_are_not_read_beyond() -> None:
    with pytest.raises(ValueError, match=r"lengths\[0\] is 9"):
        run_kernel(
            "LSTM_FORWARD",
            PaddedBatch(1, 4, torch.tensor([9]), False),
            (3, 2),
            [torch.zeros(8, 3), torch.zeros(8, 2)],
            [torch.zeros(1, 4, 3), torch.zeros(8), torch.zeros(1, 2), torch.zeros(1, 2)],
            [torch.zeros(1, 4, 2), torch.zeros(1, 2), torch.zeros(1, 2), None, None],
        )
