"""Speed and memory of the recurrent ops beside torch.nn's and beside slower ways to compute the same.

All systems of a size run in one process and take turns (A B C A B C ...), so a busy moment hits all of them alike. What
is compared is the ratio within a turn: the tables give its median and quartiles. Every form of the Meta-LSTM is checked
against the others before it is timed.

    OMP_NUM_THREADS=1 python benchmarks/recurrent.py                        # all sizes, all systems
    OMP_NUM_THREADS=1 python benchmarks/recurrent.py --sizes s1 b1 --repeats 50 --markdown table.md
    OMP_NUM_THREADS=1 python benchmarks/recurrent.py --sizes s1 --memory    # peak memory, one process a system
    python benchmarks/recurrent.py --sizes threads                          # two threads against one
"""

import argparse
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hf_metalstm.modeling.compiled_kernels import instruction_set, kernels_available
from hf_metalstm.modeling.recurrent import (
    GRUWeights,
    HyperLSTMWeights,
    LSTMWeights,
    MetaLSTMWeights,
    attention_gru,
    available_backends,
    hyper_lstm,
    lstm,
    meta_lstm,
    project_gru_inputs,
    use_backend,
)

BASELINE = "nn.LSTM, padded"
PACKED = "nn.LSTM, PackedSequence"
LITERAL = "literal: forms W(z_t)"
FAST = available_backends()[0]
BACKENDS = [name for name in available_backends() if name != "reference"]
OURS, PLAIN, HYPER = (f"{op} ({FAST})" for op in ("meta_lstm", "lstm", "hyper_lstm"))
EAGER_HYPER, HOISTED_HYPER = "hyper_lstm, eager cell", "hyper_lstm, eager, hoisted"
GRU_LOOP, ATTENTION = "loop of GRUCell", f"attention_gru ({FAST})"
LSTM_LIMIT = 1.1
# How many times as long the first takes as the second, at least.
GAINS = {
    (LITERAL, OURS): 60.0,
    (PACKED, PLAIN): None,
    (EAGER_HYPER, HYPER): 4.0,
    (HOISTED_HYPER, HYPER): None,
    (GRU_LOOP, ATTENTION): 4.0,
}
THREADED_OPS = ("lstm", "meta_lstm", "hyper_lstm")
RAGGED_GAIN = 5.0  # of (PACKED, PLAIN) on ragged rows


class Size(NamedTuple):
    """Input, hidden, meta hidden and meta vector sizes of a setting, and the limit of meta_lstm's ratio."""

    batch: int
    steps: int
    d: int
    h: int
    m: int
    z: int
    limit: float

    def __str__(self) -> str:
        return (
            f"batch {self.batch}, {self.steps} steps, input {self.d}, hidden {self.h}, meta hidden {self.m}, "
            f"meta vector {self.z}"
        )


SIZES = {
    "s1": Size(16, 200, 200, 100, 40, 40, 1.4),
    "s2": Size(16, 200, 100, 100, 20, 20, 1.1),
    "s3": Size(64, 100, 200, 200, 60, 60, 1.35),
    "b1": Size(1, 50, 200, 100, 40, 40, 1.2),
}
# Rows, hidden size, facts and passes of a Dynamic Memory Network's episodes.
EPISODES = {"70 facts, 3 passes": (32, 80, 70, 3), "230 facts, 5 passes": (32, 80, 230, 5)}


def meta_gates(sums: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """One LSTM update from its gates' sums, in the order input, forget, candidate, output."""
    i, f, g, o = sums.chunk(4, dim=-1)
    cell = g.tanh() * i.sigmoid() + cell * f.sigmoid()
    return o.sigmoid() * cell.tanh(), cell


def literal_meta_lstm(inputs: Tensor, w: MetaLSTMWeights) -> Tensor:
    """As the paper prints it: every step builds W(z_t) = P diag(z_t) Q of each row and multiplies by it."""
    batch = inputs.shape[0]
    w_m, q = torch.cat([w.meta_input, w.meta_meta, w.meta_hidden], 1), torch.cat([w.q_input, w.q_hidden], 2)
    h, c = inputs.new_zeros(2, batch, w.p.shape[1])
    meta_h, meta_c = inputs.new_zeros(2, batch, w.z.shape[1])
    outputs = []
    for x in inputs.unbind(1):
        meta_h, meta_c = meta_gates(torch.cat([x, meta_h, h], 1) @ w_m.t() + w.meta_bias, meta_c)
        z = meta_h @ w.z.t()
        matrix = (w.p * z[:, None, None, :]) @ q  # (batch, 4, hidden, input + hidden)
        bias = z @ w.b.flatten(0, 1).t()
        seen = torch.cat([x, h], 1)[:, None, :, None]
        h, c = meta_gates((matrix @ seen).flatten(1) + bias, c)
        outputs.append(h)
    return torch.stack(outputs, 1)


def low_rank_meta_lstm(inputs: Tensor, w: MetaLSTMWeights) -> Tensor:
    """P (z_t * (Q [x ; h])) + B z_t by autograd, all products with x_t before the loop: what one writes first."""
    batch, z_size, h_size = inputs.shape[0], w.z.shape[0], w.p.shape[1]
    from_x = inputs @ torch.cat([w.meta_input, w.q_input.flatten(0, 1)]).t()
    meta_x, q_x = from_x[..., : w.meta_bias.shape[0]] + w.meta_bias, from_x[..., w.meta_bias.shape[0] :]
    w_state, q_hidden = torch.cat([w.meta_meta, w.meta_hidden], 1).t(), w.q_hidden.flatten(0, 1).t()
    p, b = w.p.transpose(1, 2), w.b.flatten(0, 1).t()
    h, c = inputs.new_zeros(2, batch, h_size)
    meta_h, meta_c = inputs.new_zeros(2, batch, w.z.shape[1])
    outputs = []
    for meta_sum, q_sum in zip(meta_x.unbind(1), q_x.unbind(1), strict=True):
        meta_h, meta_c = meta_gates(torch.addmm(meta_sum, torch.cat([meta_h, h], 1), w_state), meta_c)
        z = meta_h @ w.z.t()
        scaled = torch.addmm(q_sum, h, q_hidden).view(batch, 4, z_size) * z.unsqueeze(1)
        sums = torch.bmm(scaled.transpose(0, 1), p).transpose(0, 1).reshape(batch, 4 * h_size)
        h, c = meta_gates(torch.addmm(sums, z, b), c)
        outputs.append(h)
    return torch.stack(outputs, 1)


def eager_hyper_lstm(inputs: Tensor, w: HyperLSTMWeights) -> Tensor:
    """A cell called at every step, gate by gate as the paper prints it: how public implementations are written."""
    batch = inputs.shape[0]
    h, c = inputs.new_zeros(2, batch, w.hidden.shape[1])
    hyper_h, hyper_c = inputs.new_zeros(2, batch, w.hyper_hyper.shape[1])
    linear = nn.functional.linear
    outputs = []
    for x in inputs.unbind(1):
        sums = linear(x, w.hyper_input, w.hyper_bias) + linear(hyper_h, w.hyper_hyper) + linear(h, w.hyper_hidden)
        hyper_h, hyper_c = meta_gates(sums, hyper_c)
        from_hidden, from_input, bias = linear(h, w.hidden).chunk(4, 1), linear(x, w.input).chunk(4, 1), w.bias.chunk(4)
        gates = []
        for gate in range(4):
            by_hidden = linear(linear(hyper_h, w.z_hidden[gate], w.z_hidden_bias[gate]), w.scale_hidden[gate])
            by_input = linear(linear(hyper_h, w.z_input[gate], w.z_input_bias[gate]), w.scale_input[gate])
            shift = linear(linear(hyper_h, w.z_bias[gate]), w.scale_bias[gate], bias[gate])
            gates.append(by_hidden * from_hidden[gate] + by_input * from_input[gate] + shift)
        h, c = meta_gates(torch.cat(gates, 1), c)
        outputs.append(h)
    return torch.stack(outputs, 1)


def hoisted_hyper_lstm(inputs: Tensor, w: HyperLSTMWeights) -> Tensor:
    """The same with all products with x_t before the loop and all gates in batched products."""
    batch, h_size, m_size = inputs.shape[0], w.hidden.shape[1], w.hyper_hyper.shape[1]
    hyper_x, main_x = inputs @ w.hyper_input.t() + w.hyper_bias, inputs @ w.input.t()
    w_state = torch.cat([w.hyper_hyper, w.hyper_hidden], 1).t()
    w_z = torch.cat([w.z_hidden, w.z_input, w.z_bias]).flatten(0, 1).t()
    b_z = torch.cat([w.z_hidden_bias, w.z_input_bias, torch.zeros_like(w.z_input_bias)]).flatten()
    scales = torch.cat([w.scale_hidden, w.scale_input, w.scale_bias]).transpose(1, 2)
    h, c = inputs.new_zeros(2, batch, h_size)
    hyper_h, hyper_c = inputs.new_zeros(2, batch, m_size)
    outputs = []
    for hyper_sum, from_x in zip(hyper_x.unbind(1), main_x.unbind(1), strict=True):
        hyper_h, hyper_c = meta_gates(torch.addmm(hyper_sum, torch.cat([hyper_h, h], 1), w_state), hyper_c)
        z = torch.addmm(b_z, hyper_h, w_z).view(batch, 12, -1).transpose(0, 1)
        by_hidden, by_input, shift = torch.bmm(z, scales).transpose(0, 1).reshape(batch, 3, 4 * h_size).unbind(1)
        h, c = meta_gates(by_hidden * (h @ w.hidden.t()) + by_input * from_x + shift + w.bias, c)
        outputs.append(h)
    return torch.stack(outputs, 1)


class System(NamedTuple):
    """Something to time: `run()` gives outputs (batch, steps, hidden), `leaves` what gradients are taken by."""

    run: Callable[[], Tensor]
    leaves: Sequence[Tensor]
    slow: bool = False


def random_leaf(*shape: int) -> Tensor:
    return (torch.randn(shape) * 0.1).requires_grad_()


def meta_weights(size: Size) -> MetaLSTMWeights:
    d, h, m, z = size.d, size.h, size.m, size.z
    shapes = [(4 * m, d), (4 * m, m), (4 * m, h), (4 * m,), (z, m), (4, h, z), (4, z, d), (4, z, h), (4, h, z)]
    return MetaLSTMWeights(*(random_leaf(*shape) for shape in shapes))


def hyper_weights(size: Size) -> HyperLSTMWeights:
    d, h, m, z = size.d, size.h, size.m, size.z
    shapes = [(4 * m, d), (4 * m, m), (4 * m, h), (4 * m,), (4, z, m), (4, z), (4, z, m), (4, z), (4, z, m)]
    shapes += [(4, h, z), (4, h, z), (4, h, z), (4 * h, d), (4 * h, h), (4 * h,)]
    return HyperLSTMWeights(*(random_leaf(*shape) for shape in shapes))


def with_backend(name: str, run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def chosen() -> Tensor:
        with use_backend(name):
            return run()

    return chosen


def make_systems(size: Size, lengths: Tensor | None = None) -> dict[str, System]:
    """The systems by name; those that know no lengths are left out of a ragged batch, but for padded nn.LSTM."""
    torch.manual_seed(0)
    inputs = torch.randn(size.batch, size.steps, size.d, requires_grad=True)
    module = nn.LSTM(size.d, size.h, batch_first=True)
    plain = LSTMWeights(*(random_leaf(*shape) for shape in [(4 * size.h, size.d), (4 * size.h, size.h), (4 * size.h,)]))
    meta, hyper = meta_weights(size), hyper_weights(size)
    full = torch.full((size.batch,), size.steps) if lengths is None else lengths

    def packed() -> Tensor:
        sequence = nn.utils.rnn.pack_padded_sequence(inputs, full, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(module(sequence)[0], batch_first=True)[0]

    module_leaves = [inputs, *module.parameters()]
    systems = {
        BASELINE: System(lambda: module(inputs)[0], module_leaves),
        PACKED: System(packed, module_leaves),
    }
    ops = {
        "lstm": (lambda: lstm(inputs, plain, lengths)[0], [inputs, *plain]),
        "meta_lstm": (lambda: meta_lstm(inputs, meta, lengths)[0], [inputs, *meta]),
        "hyper_lstm": (lambda: hyper_lstm(inputs, hyper, lengths)[0], [inputs, *hyper]),
    }
    for op, (run, leaves) in ops.items():
        for backend in BACKENDS:
            systems[f"{op} ({backend})"] = System(with_backend(backend, run), leaves)
    if lengths is None:
        systems[EAGER_HYPER] = System(lambda: eager_hyper_lstm(inputs, hyper), [inputs, *hyper])
        systems[HOISTED_HYPER] = System(lambda: hoisted_hyper_lstm(inputs, hyper), [inputs, *hyper])
        systems["low-rank, eager"] = System(lambda: low_rank_meta_lstm(inputs, meta), [inputs, *meta])
        systems[LITERAL] = System(lambda: literal_meta_lstm(inputs, meta), [inputs, *meta], slow=True)
    return systems


def make_episode_systems(batch: int, h: int, facts: int, passes: int) -> dict[str, System]:
    """Several passes of a gated GRU over the same facts, each with gates of its own."""
    torch.manual_seed(0)
    inputs, gates = torch.randn(batch, facts, h, requires_grad=True), torch.rand(passes, batch, facts)
    gates.requires_grad_()
    weights = GRUWeights(*(random_leaf(*shape) for shape in [(3 * h, h), (3 * h, h), (3 * h,), (3 * h,)]))
    cell = nn.GRUCell(h, h)
    cell.load_state_dict(dict(zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), weights, strict=True)))

    def loop() -> Tensor:
        episodes = []
        for gate in gates:
            state = inputs.new_zeros(batch, h)
            for t in range(facts):
                opened = gate[:, t, None]
                state = opened * cell(inputs[:, t], state) + (1 - opened) * state
            episodes.append(state)
        return torch.stack(episodes, 1)

    def op() -> Tensor:
        projected = project_gru_inputs(inputs, weights)
        return torch.stack([attention_gru(projected, gate, weights) for gate in gates], 1)

    systems = {GRU_LOOP: System(loop, [inputs, gates, *cell.parameters()])}
    for backend in BACKENDS:
        systems[f"attention_gru ({backend})"] = System(with_backend(backend, op), [inputs, gates, *weights])
    return systems


def check_forms_agree() -> None:
    """Compares outputs and gradients of all forms of an op on a small batch."""
    systems = make_systems(Size(3, 7, 6, 5, 4, 3, 0.0))
    meta = [*(f"meta_lstm ({backend})" for backend in BACKENDS), "low-rank, eager", LITERAL]
    hyper = [*(f"hyper_lstm ({backend})" for backend in BACKENDS), EAGER_HYPER, HOISTED_HYPER]
    episodes = make_episode_systems(3, 5, 7, 2)
    for group, names in ((systems, meta), (systems, hyper), (episodes, list(episodes))):
        results = []
        for name in names:
            outputs = group[name].run()
            results.append((outputs, *torch.autograd.grad(outputs.square().sum(), group[name].leaves)))
        for other in results[1:]:
            for found, expected in zip(other, results[0], strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def literal_bytes(size: Size) -> int:
    """What the literal form keeps for its backward pass: W(z_t) and P diag(z_t) of every row and step, and a copy."""
    return 4 * size.batch * size.steps * 4 * size.h * (size.d + size.h) * 2


def available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def one_call(
    system: System, train: bool, grad_outputs: Tensor, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of one forward (and backward) pass."""
    with torch.set_grad_enabled(train):
        start = clock()
        outputs = system.run()
        if train:
            torch.autograd.grad(outputs, system.leaves, grad_outputs)
        return clock() - start


def take_turns(
    systems: dict[str, System], train: bool, repeats: int, slow: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of every turn. A slow system takes part in the first `slow` turns, after one call of the others."""
    with torch.no_grad():
        grad_outputs = torch.randn_like(next(iter(systems.values())).run())
    for system in systems.values():
        if not system.slow:
            one_call(system, train, grad_outputs)
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for turn in range(repeats):
        for name, system in systems.items():
            if not system.slow or turn < slow:
                seconds[name].append(one_call(system, train, grad_outputs, clock))
    return seconds


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def ratio(seconds: dict[str, list[float]], name: str, base: str) -> tuple[float, str]:
    """Median of the ratios within a turn, and the cell that shows it with its quartiles."""
    low, middle, high = quartiles([one / other for one, other in zip(seconds[name], seconds[base], strict=False)])
    digits = 0 if middle >= 30 else 2
    return middle, f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def table(rows: list[list[str]]) -> str:
    """A Markdown table whose columns are aligned in a terminal too; all columns but the first to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    ruler = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = []
    for row in [rows[0], ruler, *rows[1:]]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def speed_table(seconds: dict[str, list[float]], limits: dict[str, float], gains: dict[tuple[str, str], Any]) -> str:
    """Times beside the first system's, then how much longer slower ways take; with what each must hold."""
    base = next(iter(seconds))
    rows = [["", "turns", "ms", f"x {base} (quartiles)", "limit", "holds"]]
    for name, turns in seconds.items():
        middle, shown = ratio(seconds, name, base)
        verdict = [f"<= {limits[name]}", "yes" if middle <= limits[name] else "NO"] if name in limits else ["", ""]
        milliseconds = f"{1000 * statistics.median(turns):.1f}"
        rows.append([name, str(len(turns)), milliseconds, "1" if name == base else shown, *verdict])
    for (slow, fast), limit in gains.items():
        if slow in seconds and fast in seconds:
            middle, shown = ratio(seconds, slow, fast)
            verdict = [f">= {limit:.0f}", "yes" if middle >= limit else "NO"] if limit else ["", ""]
            rows.append([f"{slow.split(':')[0]} / {fast}", str(len(seconds[slow])), "", shown, *verdict])
    return table(rows)


def report_size(name: str, arguments: argparse.Namespace, say: Callable[[str], None]) -> None:
    """Both speed tables of one size."""
    size = SIZES[name]
    systems = make_systems(size)
    say(f"## {name}: {size}\n")
    if arguments.literal_repeats == 0:
        del systems[LITERAL]
    elif literal_bytes(size) > available_bytes() / 2:
        del systems[LITERAL]
        say(f"The literal form needs about {literal_bytes(size) / 2**30:.0f} GiB here and was left out.\n")
    # A turn of b1 takes milliseconds: more of them cost nothing and steady the median.
    repeats = arguments.repeats * (5 if size.batch == 1 else 1)
    for train, title in ((True, "Forward and backward"), (False, "Forward only, no gradients")):
        seconds = take_turns(systems, train, repeats, arguments.literal_repeats, CLOCKS[arguments.clock])
        # The literal form is held against its limit at s1 alone.
        gains = {pair: None if LITERAL in pair and name != "s1" else gain for pair, gain in GAINS.items()}
        limits = {OURS: size.limit, PLAIN: LSTM_LIMIT}
        say(f"{title}:\n\n{speed_table(seconds, limits, gains) if train else speed_table(seconds, {}, {})}\n")


def report_ragged(arguments: argparse.Namespace, say: Callable[[str], None]) -> None:
    """Speed on rows of different lengths, as texts have."""
    # Evenly spaced quantiles of the distribution: a typical batch rather than one draw's luck.
    normal = torch.special.ndtri((torch.arange(16) + 0.5) / 16)
    lengths = (normal * 0.7).exp()
    batch = (lengths * 126 / lengths.mean()).round().long()[torch.randperm(16)]
    size = SIZES["s1"]._replace(steps=int(batch.max()))
    full = batch.sum().item() / (size.batch * size.steps)
    say(
        f"## ragged: {size}\n\nLengths {int(batch.min())} to {size.steps}, mean {batch.float().mean():.0f}, from a "
        f"lognormal distribution: the padded batch is {full:.0%} full.\n"
    )
    for train, title in ((True, "Forward and backward"), (False, "Forward only, no gradients")):
        seconds = take_turns(make_systems(size, batch), train, arguments.repeats, 0, CLOCKS[arguments.clock])
        limits, gains = ({PLAIN: 1.0}, {(PACKED, PLAIN): RAGGED_GAIN}) if train else ({}, {})
        say(f"{title}:\n\n{speed_table(seconds, limits, gains)}\n")


def report_episodes(arguments: argparse.Namespace, say: Callable[[str], None]) -> None:
    """Speed of the passes of a memory network over its facts."""
    for title, (batch, h, facts, passes) in EPISODES.items():
        say(f"## episodes: batch {batch}, hidden {h}, {title}\n")
        seconds = take_turns(
            make_episode_systems(batch, h, facts, passes), True, arguments.repeats, 0, CLOCKS[arguments.clock]
        )
        say(f"Forward and backward:\n\n{speed_table(seconds, {}, GAINS)}\n")


def report_threads(arguments: argparse.Namespace, say: Callable[[str], None]) -> None:
    """What a second thread brings, turn by turn."""
    say("## threads: two against one, forward and backward\n")
    rows = [["one thread's time / two threads' (quartiles)", "nn.LSTM", *(f"{op} ({FAST})" for op in THREADED_OPS)]]
    for name in ("s1", "s3"):
        systems = make_systems(SIZES[name])
        cells = []
        for system in (BASELINE, *(f"{op} ({FAST})" for op in THREADED_OPS)):
            with torch.no_grad():
                grad_outputs = torch.randn_like(systems[system].run())
            seconds: dict[str, list[float]] = {"one": [], "two": []}
            for turn in range(arguments.repeats + 1):
                for label, number in (("one", 1), ("two", 2)):
                    torch.set_num_threads(number)
                    spent = one_call(systems[system], True, grad_outputs)
                    if turn:
                        seconds[label].append(spent)
            cells.append(ratio(seconds, "one", "two")[1])
        rows.append([name, *cells])
    torch.set_num_threads(arguments.threads)
    say(table(rows) + "\n")


def status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def peak_of(size_name: str, system_name: str) -> int:
    """Bytes that one forward and backward pass adds to this process at its peak."""
    torch.set_num_threads(1)
    size = SIZES[size_name]
    short = make_systems(size._replace(steps=2))[system_name]
    one_call(short, True, torch.randn(size.batch, 2, size.h))  # loads the kernels
    system, grad_outputs = make_systems(size)[system_name], torch.randn(size.batch, size.steps, size.h)
    before = status_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    one_call(system, True, grad_outputs)
    return status_bytes("VmHWM") - before


def report_memory(names: Sequence[str], say: Callable[[str], None]) -> None:
    """Peak memory of each system, in a process of its own."""
    say("## Peak memory of forward and backward above what inputs and weights take\n")
    if platform.system() != "Linux":
        say("Left out: the peak is read from /proc, which this system does not have.\n")
        return
    rows = [["MiB", *names]]
    context = multiprocessing.get_context("spawn")
    for system in make_systems(SIZES["b1"]):
        cells = []
        for name in names:
            if system == LITERAL and literal_bytes(SIZES[name]) > available_bytes() / 2:
                cells.append("too large")
                continue
            with context.Pool(1) as pool:
                cells.append(f"{pool.apply(peak_of, (name, system)) / 2**20:.0f}")
        rows.append([system, *cells])
    say(table(rows) + "\n")


def machine() -> str:
    """What the numbers depend on."""
    model, flags = platform.processor() or "unknown", ""
    if Path("/proc/cpuinfo").exists():
        entries = dict(
            line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if line.count(":") == 1
        )
        stripped = {key.strip(): value.strip() for key, value in entries.items()}
        model, flags = stripped.get("model name", model), stripped.get("flags", "")
    wanted = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_tile")
    return "\n".join(
        [
            f"* {platform.system()} {platform.machine()}, {model}, {os.cpu_count()} cores, "
            f"{' '.join(flag for flag in wanted if flag in flags.split()) or 'instruction set unknown'}",
            f"* Python {platform.python_version()}, torch {torch.__version__} (kernels for "
            f"{torch.backends.cpu.get_cpu_capability()}, oneDNN "
            f"{'on' if torch.backends.mkldnn.is_available() else 'off'}), "
            f"{torch.get_num_threads()} thread{'s' if torch.get_num_threads() > 1 else ''}, float32",
            f"* compiled kernels: {instruction_set() if kernels_available() else 'not built'}",
            f"* load of the machine at the start: {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "",
        ]
    ).strip()


REPORTS = {"ragged": report_ragged, "episodes": report_episodes, "threads": report_threads}
WHAT = [*SIZES, *REPORTS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", nargs="+", choices=WHAT, default=WHAT, metavar="WHAT", help=f"of {', '.join(WHAT)}; default: all"
    )
    parser.add_argument(
        "--repeats", type=int, default=20, help="turns that every system takes (b1: five times as many)"
    )
    parser.add_argument(
        "--literal-repeats", type=int, default=2, help="turns of the literal form, seconds each; 0 leaves it out"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument(
        "--clock",
        choices=list(CLOCKS),
        default="wall",
        help="wall time, or the CPU time of this process, which other work on the machine disturbs less",
    )
    parser.add_argument("--memory", action="store_true", help="measure peak memory instead of time")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write what is printed to this file")
    arguments = parser.parse_args()
    if arguments.repeats < 2:
        parser.error(f"--repeats is {arguments.repeats}, but a median with quartiles needs at least 2")
    torch.set_num_threads(arguments.threads)
    printed: list[str] = []

    def say(text: str) -> None:
        print(text, flush=True)
        printed.append(text)

    if arguments.clock == "cpu" and arguments.threads > 1:
        parser.error("--clock cpu adds up the time of all threads and compares nothing with --threads above 1")
    say(machine())
    say(f"* seconds are {'CPU time of the process' if arguments.clock == 'cpu' else 'wall time'}\n")
    check_forms_agree()
    if arguments.memory:
        report_memory([name for name in arguments.sizes if name in SIZES], say)
    else:
        for name in arguments.sizes:
            if name in REPORTS:
                REPORTS[name](arguments, say)
            else:
                report_size(name, arguments, say)
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(printed))


if __name__ == "__main__":
    main()
