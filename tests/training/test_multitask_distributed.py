"""MultiTaskTrainer on two processes: tasks apart, equal weights, exact losses, every example predicted once."""

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import hf_metalstm

SCRIPT = Path(__file__).with_name("two_processes.py")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("two_processes", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """What each of two processes found, by one torchrun for all tests: most of its time is spent on imports."""
    folder = tmp_path_factory.mktemp("two_processes")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root = str(Path(hf_metalstm.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    command += ["--master_addr", "127.0.0.1", "--master_port", str(port), str(SCRIPT), str(folder)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-6000:]
    found = [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]
    assert [process["world_size"] for process in found] == [2, 2]
    return found


def assert_equal_weights(first, second, tolerance=0.0):
    assert first.keys() == second.keys()
    for name, weight in first.items():
        torch.testing.assert_close(weight, second[name], rtol=0, atol=tolerance, msg=name)


def test_processes_on_different_tasks_finish_with_equal_weights(processes):
    first, second = (process["apart"] for process in processes)
    assert first["wrapper"] == second["wrapper"] == "DistributedDataParallel"
    assert first["steps"] == second["steps"] == 20
    assert first["tasks_seen"] == [[0]] * 20 and second["tasks_seen"] == [[1]] * 20
    assert_equal_weights(first["weights"], second["weights"])
    # Both tasks' private parts learned, each from the process that saw the task.
    assert first["unchanged"] == second["unchanged"] == []


def test_two_processes_with_accumulation_train_as_one_large_batch(processes, script, tmp_path):
    alone = script.train_whole_epochs(tmp_path, 20, 1)
    for process in processes:
        found = process["whole"]
        assert_equal_weights(found["weights"], alone["weights"], tolerance=1e-11)
        assert found["losses"] == pytest.approx(alone["losses"], abs=1e-6)
        for entry, expected in zip(found["epoch_losses"], alone["epoch_losses"], strict=True):
            assert entry["loss"] == pytest.approx(expected["loss"], abs=1e-11)
            assert entry["tasks"] == pytest.approx(expected["tasks"], abs=1e-11)


def test_each_of_22_examples_is_predicted_once_and_in_order(processes, script, tmp_path):
    alone = script.predict_22_examples(tmp_path)
    assert len(alone["predictions"]) == 22
    for process in processes:
        found = process["predict"]
        assert found["labels"].tolist() == alone["labels"].tolist()
        np.testing.assert_allclose(found["predictions"], alone["predictions"], atol=1e-12)
        assert found["metrics"] == pytest.approx(alone["metrics"], abs=1e-9)


def test_a_run_of_two_processes_resumes_exactly_within_an_epoch(processes):
    for process in processes:
        found = process["resume"]
        assert found["steps"] == 15  # five a epoch: step 7 is inside the second
        assert_equal_weights(found["whole"], found["resumed"])
        assert found["curves"][0] == found["curves"][1] and len(found["curves"][0]) == 3
    assert_equal_weights(processes[0]["resume"]["whole"], processes[1]["resume"]["whole"])
