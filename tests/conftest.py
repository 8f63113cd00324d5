"""Settings of the whole suite: one thread, no network, caches of its own, fixed seeds."""

import atexit
import os
import random
import shutil
import tempfile

# All of these are read when the libraries are imported, so they come before any of them.
# A fresh cache per process: the suite neither sees nor changes its user's caches, and parallel workers never meet.
_CACHE = tempfile.mkdtemp(prefix="hf_metalstm_tests_")
atexit.register(shutil.rmtree, _CACHE, ignore_errors=True)
os.environ.update(
    HF_HOME=_CACHE,
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    HF_EVALUATE_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    TOKENIZERS_PARALLELISM="false",
    OMP_NUM_THREADS="1",
    MPLBACKEND="Agg",
)

import hypothesis  # noqa: E402
import numpy  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)

# No deadline and no complaint about slow generation: a loaded machine must not make a test fail.
hypothesis.settings.register_profile(
    "hf_metalstm",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("hf_metalstm")


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Start every test from the same random state, whatever ran before it."""
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
