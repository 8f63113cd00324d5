"""Speed of the CRF's partition function and its gradient beside slower ways to compute them.

All systems of a size take turns in one process (A B C A B C ...); what is compared is the ratio within a turn, of which
the tables give median and quartiles. All forms are checked against each other before they are timed.

    OMP_NUM_THREADS=1 python benchmarks/crf.py --markdown benchmarks/crf.md
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from recurrent import machine, quartiles, table
from torch import Tensor

from hf_metalstm.modeling import crf_forward_backward
from hf_metalstm.modeling.crf import LinearChainCRF

OURS = "LinearChainCRF"
LOOP = "each row by itself"
LIMIT = 5.0


class Size(NamedTuple):
    """Of a batch; all rows are full, or their lengths are spread evenly from a quarter of `tokens` up."""

    batch: int
    tokens: int
    tags: int
    full: bool = True

    def __str__(self) -> str:
        lengths = "" if self.full else f", lengths {self.lengths.min()} to {self.tokens}"
        return f"{self.batch} rows of {self.tokens} tokens{lengths}, {self.tags} tags"

    @property
    def lengths(self) -> Tensor:
        if self.full:
            return torch.full((self.batch,), self.tokens)
        return torch.linspace(self.tokens / 4, self.tokens, self.batch).long()


SIZES = [Size(8, 100, 20), Size(8, 100, 20, full=False), Size(16, 30, 9, full=False), Size(32, 50, 45, full=False)]


def row_by_row(crf: LinearChainCRF, emissions: Tensor, mask: Tensor) -> Tensor:
    """The forward algorithm of one row after the other, vectorised over tags."""
    results = []
    for row, length in zip(emissions, mask.sum(1).tolist(), strict=True):
        alpha = crf.start_scores + row[0]
        for emission in row[1:length]:
            alpha = (alpha[:, None] + crf.transition_scores).logsumexp(0) + emission
        results.append((alpha + crf.end_scores).logsumexp(0))
    return torch.stack(results)


def batched_loop(crf: LinearChainCRF, emissions: Tensor, mask: Tensor) -> Tensor:
    """The forward algorithm of all rows at once in logarithms; autograd goes back through the loop."""
    alpha = crf.start_scores + emissions[:, 0]
    for emission, real in zip(emissions.unbind(1)[1:], mask.unbind(1)[1:], strict=True):
        following = (alpha[:, :, None] + crf.transition_scores).logsumexp(1) + emission
        alpha = torch.where(real[:, None], following, alpha)
    return (alpha + crf.end_scores).logsumexp(1)


def ours(crf: LinearChainCRF, emissions: Tensor, mask: Tensor) -> Tensor:
    return crf.log_partition(emissions, mask)


def in_logarithms(crf: LinearChainCRF, emissions: Tensor, mask: Tensor) -> Tensor:
    """Ours as it is for scores that are too wide for probabilities."""
    safe = crf_forward_backward.scaling_is_safe
    crf_forward_backward.scaling_is_safe = lambda scores: False
    try:
        return crf.log_partition(emissions, mask)
    finally:
        crf_forward_backward.scaling_is_safe = safe


SYSTEMS: dict[str, Callable[[LinearChainCRF, Tensor, Tensor], Tensor]] = {
    LOOP: row_by_row,
    "batched, autograd through the loop": batched_loop,
    f"{OURS}, in logarithms": in_logarithms,
    OURS: ours,
}


def one_call(run: Callable[[], Tensor], leaves: list[Tensor] | None) -> float:
    """Seconds of one forward pass, with a backward pass to `leaves` if there are any."""
    with torch.set_grad_enabled(leaves is not None):
        start = time.perf_counter()
        partition = run()
        if leaves is not None:
            torch.autograd.grad(partition.sum(), leaves)
        return time.perf_counter() - start


def report(size: Size, repeats: int, say: Callable[[str], None]) -> None:
    torch.manual_seed(0)
    crf = LinearChainCRF(size.tags)
    emissions = torch.randn(size.batch, size.tokens, size.tags, requires_grad=True)
    mask = torch.arange(size.tokens) < size.lengths[:, None]
    leaves = [emissions, *crf.parameters()]
    expected = None
    for system in SYSTEMS.values():
        partition = system(crf, emissions, mask)
        found = [partition, *torch.autograd.grad(partition.sum(), leaves)]
        expected = expected or found
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)

    say(f"## {size}\n")
    rows = [["", "forward ms", f"{LOOP} / it", "forward + backward ms", f"{LOOP} / it"]]
    seconds: dict[tuple[str, bool], list[float]] = {(name, train): [] for name in SYSTEMS for train in (False, True)}
    for turn in range(repeats + 1):
        for (name, train), taken in seconds.items():
            used = one_call(lambda name=name: SYSTEMS[name](crf, emissions, mask), leaves if train else None)
            if turn:  # the first turn warms up
                taken.append(used)
    for name in SYSTEMS:
        cells = [name]
        for train in (False, True):
            turns = zip(seconds[LOOP, train], seconds[name, train], strict=True)
            low, middle, high = quartiles([loop / own for loop, own in turns])
            cells += [f"{1000 * statistics.median(seconds[name, train]):.2f}", f"{middle:.1f} ({low:.1f}-{high:.1f})"]
            if name == OURS and size == SIZES[0]:
                cells[-1] += f", limit {LIMIT:.0f}: {'holds' if middle >= LIMIT else 'MISSED'}"
        rows.append(cells)
    say(table(rows) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30, help="turns that every system takes")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write what is printed to this file")
    arguments = parser.parse_args()
    if arguments.repeats < 2:
        parser.error(f"--repeats is {arguments.repeats}, but a median with quartiles needs at least 2")
    torch.set_num_threads(1)
    printed: list[str] = []

    def say(text: str) -> None:
        print(text, flush=True)
        printed.append(text)

    say("# CRF: partition function\n")
    say(f"    OMP_NUM_THREADS=1 python benchmarks/crf.py --repeats {arguments.repeats} --markdown benchmarks/crf.md\n")
    say(
        "Random emissions and scores, seed 0. A ratio says how many times faster a system is than the loop over rows.\n"
    )
    say(f"{machine()}\n")
    for size in SIZES:
        report(size, arguments.repeats, say)
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(printed).rstrip() + "\n")


if __name__ == "__main__":
    main()
