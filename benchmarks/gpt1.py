#!/usr/bin/env python
"""GPT-1 at full size against transformers' OpenAIGPT, in pairs in one run.

    OMP_NUM_THREADS=1 python benchmarks/gpt1.py [--pairs 5] [--markdown FILE]

Both have the same weights, and the losses and tokens that they give are compared first. Times are medians; a ratio is
the median of the pairs' ratios. Memory is the peak of a process of its own that trains three steps with AdamW.
"""

import argparse
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import OpenAIGPTConfig, OpenAIGPTDoubleHeadsModel, OpenAIGPTLMHeadModel, set_seed

from hf_metalstm import GPT1DoubleHeadsModel, GPT1LMHeadModel

BATCH, CHOICES, TOKENS, COEFFICIENT = 4, 2, 256, 0.5
PROMPT, NEW_TOKENS = 32, 128
SIDES = ("transformers", "ours")
Step = Callable[[], Any]


def choice_batch() -> dict[str, torch.Tensor]:
    """Texts of full length whose extract tokens are the last ones, so that both read the same."""
    make = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 40478, (BATCH, CHOICES, TOKENS), generator=make)
    places = torch.full((BATCH, CHOICES), TOKENS - 1)
    return {"input_ids": ids, "mc_token_ids": places, "labels": ids, "mc_labels": torch.tensor([0, 1, 1, 0])}


def training_step(model: torch.nn.Module, side: str, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Forward and backward of both objectives; transformers' model has to be told to add them."""
    output = model(**batch)
    loss = output.loss if side == "ours" else output.mc_loss + COEFFICIENT * output.loss
    loss.backward()
    return loss.detach()


def double_heads(folder: Path, side: str) -> torch.nn.Module:
    model_class = GPT1DoubleHeadsModel if side == "ours" else OpenAIGPTDoubleHeadsModel
    return model_class.from_pretrained(folder / "double")


def measure(steps: dict[str, Step], pairs: int) -> tuple[float, float, float]:
    """Medians in seconds of both sides, and of the pairs' ratios; the sides take turns at being first."""
    for step in steps.values():
        step()
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    for number in range(pairs):
        for side in SIDES if number % 2 == 0 else reversed(SIDES):
            began = time.perf_counter()
            steps[side]()
            times[side].append(time.perf_counter() - began)
    theirs, ours = times["transformers"], times["ours"]
    ratio = statistics.median(a / b for a, b in zip(theirs, ours, strict=True))
    return statistics.median(theirs), statistics.median(ours), ratio


def peak_memory(folder: Path, side: str) -> float:
    """MiB at the peak of a process that trains three steps."""
    done = subprocess.run(
        [sys.executable, __file__, "--memory_of", side, "--folder", str(folder)],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return float(done.stdout.split()[-1])


def train_three_steps(folder: Path, side: str) -> None:
    model = double_heads(folder, side).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(3):
        training_step(model, side, choice_batch())
        optimizer.step()
        optimizer.zero_grad()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5, metavar="N")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table here too")
    parser.add_argument("--memory_of", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.memory_of:
        train_three_steps(args.folder, args.memory_of)
        return
    with tempfile.TemporaryDirectory() as folder:
        report = run(Path(folder), args.pairs)
    print(report)
    if args.markdown is not None:
        args.markdown.write_text(report, encoding="utf-8")


def run(folder: Path, pairs: int) -> str:
    set_seed(0)
    OpenAIGPTDoubleHeadsModel(OpenAIGPTConfig()).save_pretrained(folder / "double")
    OpenAIGPTLMHeadModel(OpenAIGPTConfig()).save_pretrained(folder / "lm")
    rows: list[tuple[str, str, str, str]] = []

    def add(name: str, steps: dict[str, Step], repeats: int) -> None:
        theirs, ours, ratio = measure(steps, repeats)
        rows.append((name, f"{1000 * theirs:,.0f} ms", f"{1000 * ours:,.0f} ms", f"{ratio:.2f}x"))
        print("| " + " | ".join(rows[-1]) + " |", file=sys.stderr, flush=True)

    batch = choice_batch()
    doubles = {side: double_heads(folder, side).eval() for side in SIDES}
    losses = [training_step(doubles[side], side, batch) for side in SIDES]
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-4)
    for model in doubles.values():
        model.train()

    def step_of(side: str) -> Step:
        def step() -> None:
            doubles[side].zero_grad()
            training_step(doubles[side], side, batch)

        return step

    add(f"double-heads training step, {BATCH} x {CHOICES} x {TOKENS}", {s: step_of(s) for s in SIDES}, pairs)
    models = {
        "ours": GPT1LMHeadModel.from_pretrained(folder / "lm").eval(),
        "transformers": OpenAIGPTLMHeadModel.from_pretrained(folder / "lm").eval(),
    }
    with torch.no_grad():
        for rows_of in (1, 4):
            ids = batch["input_ids"].flatten(0, 1)[:rows_of]
            torch.testing.assert_close(
                models["ours"](ids).logits, models["transformers"](ids).logits, rtol=1e-4, atol=1e-4
            )
            add(
                f"forward, {rows_of} x {TOKENS}",
                {s: lambda s=s, ids=ids: models[s](ids) for s in SIDES},  # type: ignore[misc]
                2 * pairs,
            )
        prompt = batch["input_ids"][0, :1, :PROMPT]

        def generate(side: str) -> Step:
            return lambda: models[side].generate(
                prompt, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0
            )

        if not torch.equal(generate("ours")(), generate("transformers")()):
            raise RuntimeError("the two models generate other tokens")
        add(f"generate {NEW_TOKENS} tokens after {PROMPT}, greedy", {s: generate(s) for s in SIDES}, max(2, pairs // 2))
    peaks = {side: peak_memory(folder, side) for side in SIDES}
    theirs, ours = peaks["transformers"], peaks["ours"]
    rows.append(
        ("peak memory of training with AdamW", f"{theirs:,.0f} MiB", f"{ours:,.0f} MiB", f"{theirs / ours:.2f}x")
    )
    lines = [
        f"{processor()}, one thread, torch {torch.__version__}, float32, 12 layers of 768 units; {pairs} pairs.",
        "",
        "| | transformers' OpenAIGPT | ours | ratio |",
        "|---|---:|---:|---:|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
