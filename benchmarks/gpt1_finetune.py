#!/usr/bin/env python
"""Does fine-tuning learn? A small GPT-1, pretrained on generated text, on the generated tasks, over three seeds.

    OMP_NUM_THREADS=1 python benchmarks/gpt1_finetune.py OUTPUT_FOLDER

Multiple choice runs with the auxiliary language model (lm_coef 0.5) and without (0), the other two tasks with 0.5.
"""

import importlib.util
import statistics
import sys
import time
from pathlib import Path
from types import ModuleType

SEEDS = (0, 1, 2)
RUNS = (("multiple_choice", 0.5), ("multiple_choice", 0.0), ("entailment", 0.5), ("classification", 0.5))
SIZES = (
    "--n_embd 64 --n_layer 2 --n_head 4 --n_positions 96 --bpe_size 400 --generated_texts 4000 --pretraining_epochs 4 "
    "--per_device_train_batch_size 32 --use_cpu --disable_tqdm true --save_strategy no"
).split()


def load_example() -> ModuleType:
    path = Path(__file__).resolve().parent.parent / "examples" / "run_gpt1.py"
    spec = importlib.util.spec_from_file_location("run_gpt1", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    example, folder = load_example(), Path(sys.argv[1])
    scores: dict[tuple[str, float], list[float]] = {run: [] for run in RUNS}
    started = time.perf_counter()
    for seed in SEEDS:
        base = folder / str(seed)
        common = [*SIZES, "--seed", str(seed)]
        example.main(["--from_scratch", "generated", "--output_dir", str(base), *common])
        for task, coefficient in RUNS:
            arguments = [
                "--model_name_or_path",
                str(base / "pretrained"),
                "--task",
                task,
                "--lm_coef",
                str(coefficient),
            ]
            settings = ["--num_train_epochs", "8", "--learning_rate", "1e-3", "--output_dir", str(base / task)]
            scores[task, coefficient].append(example.main([*arguments, *settings, *common])["test_accuracy"])
    print("| task | lm_coef | test accuracy, per seed | mean |\n|---|---:|---|---:|")
    for (task, coefficient), found in scores.items():
        shown = ", ".join(f"{score:.4f}" for score in found)
        print(f"| {task.replace('_', ' ')} | {coefficient} | {shown} | {statistics.mean(found):.4f} |")
    print(f"\n{time.perf_counter() - started:.0f} seconds in all")


if __name__ == "__main__":
    main()
