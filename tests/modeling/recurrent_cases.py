"""Random calls of the recurrent ops, and all results and gradients of a call by name; shared by their tests."""

import math
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from hf_metalstm.modeling.recurrent import (
    GRUWeights,
    HyperLSTMState,
    HyperLSTMWeights,
    LSTMState,
    LSTMWeights,
    MetaLSTMState,
    MetaLSTMWeights,
    gru,
    hyper_lstm,
    lstm,
    meta_lstm,
    use_backend,
)

OPS = {"lstm": lstm, "meta_lstm": meta_lstm, "hyper_lstm": hyper_lstm, "gru": gru}


class GRUState(NamedTuple):
    """The state of a GRU, a plain tensor to the op, as a tuple like that of the others."""

    hidden: Tensor


def random_weights(op: str, d: int, h: int, m: int, z: int, dtype: torch.dtype = torch.float64) -> Any:
    """Weights at the scale of a trained cell: gates neither linear nor saturated."""

    def draw(scale: float, shapes: list[tuple[int, ...]]) -> list[Tensor]:
        return [torch.randn(shape, dtype=dtype) * scale for shape in shapes]

    if op == "lstm":
        return LSTMWeights(*draw(h**-0.5, [(4 * h, d), (4 * h, h), (4 * h,)]))
    if op in ("gru", "attention_gru"):
        return GRUWeights(*draw(h**-0.5, [(3 * h, d), (3 * h, h), (3 * h,), (3 * h,)]))
    second = draw(m**-0.5, [(4 * m, d), (4 * m, m), (4 * m, h), (4 * m,)])
    if op == "meta_lstm":
        basic = draw(h**-0.5, [(4, h, z), (4, z, d), (4, z, h), (4, h, z)])
        return MetaLSTMWeights(*second, torch.randn(z, m, dtype=dtype), *basic)
    zs = draw(1.0, [(4, z, m), (4, z), (4, z, m), (4, z), (4, z, m)])
    main = draw(h**-0.5, [(4, h, z), (4, h, z), (4, h, z), (4 * h, d), (4 * h, h), (4 * h,)])
    return HyperLSTMWeights(*second, *zs, *main)


def random_state(op: str, batch: int, h: int, m: int, dtype: torch.dtype = torch.float64) -> Any:
    kind, sizes = {
        "lstm": (LSTMState, (h, h)),
        "meta_lstm": (MetaLSTMState, (h, h, m, m)),
        "hyper_lstm": (HyperLSTMState, (h, h, m, m)),
        "gru": (GRUState, (h,)),
        "attention_gru": (GRUState, (h,)),
    }[op]
    return kind(*(torch.randn(batch, size, dtype=dtype) for size in sizes))


def trained(tensors: Any) -> Any:
    """The same tuple of tensors, all asking for a gradient."""
    return type(tensors)(*(part.requires_grad_() for part in tensors))


def call(op: str, inputs: Tensor, weights: Any, lengths: Tensor | None = None, **options: Any) -> dict[str, Tensor]:
    """Every result of an op by its name."""
    state = options.pop("initial_state", None)
    if isinstance(state, GRUState):
        state = state.hidden
    *sequences, final = OPS[op](inputs, weights, lengths, initial_state=state, **options)
    final = GRUState(final) if isinstance(final, Tensor) else final
    return dict(zip(("outputs", "vectors"), sequences, strict=False)) | final._asdict()


def results_and_gradients(
    backend: str,
    op: str,
    inputs: Tensor,
    weights: Any,
    lengths: Tensor | None,
    state: Any,
    reverse: bool,
    autocast: bool = False,
) -> dict[str, Tensor]:
    """Results, and the gradients of a weighted sum of all of them by everything that requires one."""
    with use_backend(backend), torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        results = call(op, inputs, weights, lengths, initial_state=state, reverse=reverse)
    leaves = {"inputs": inputs} | weights._asdict()
    if state is not None:
        leaves |= {f"initial_{name}": part for name, part in state._asdict().items()}
    return with_gradients(results, leaves)


def with_gradients(results: dict[str, Tensor], leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    if wanted:
        generator = torch.Generator().manual_seed(3)
        total = sum((part * torch.randn(part.shape, generator=generator).to(part)).sum() for part in results.values())
        gradients = torch.autograd.grad(total, list(wanted.values()))
        results = results | {f"gradient of {name}": part for name, part in zip(wanted, gradients, strict=True)}
    return {name: part.detach() for name, part in results.items()}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], atol: float = 1e-10) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


LAYOUTS = {
    "contiguous": lambda tensor: tensor,
    "transposed": lambda tensor: tensor.transpose(0, -1).contiguous().transpose(0, -1),
    "strided": lambda tensor: torch.stack([tensor, tensor * math.nan], dim=-1)[..., 0],
}


@st.composite
def calls(draw: st.DrawFn, largest: int = 9) -> tuple[Any, ...]:
    """What `results_and_gradients` takes after the backend: any size, length, layout and choice of what is trained."""
    op = draw(st.sampled_from(list(OPS)))
    batch, steps = draw(st.integers(1, 5)), draw(st.integers(1, 9 if largest < 10 else 4))
    d, h, m, z = (draw(st.integers(1, largest)) for _ in range(4))
    lengths = draw(
        st.one_of(
            st.none(),
            st.integers(1, steps).map(lambda length: [length] * batch),
            st.lists(st.integers(1, steps), min_size=batch, max_size=batch),
        )
    )
    torch.manual_seed(draw(st.integers(0, 1000)))
    inputs = torch.randn(batch, steps, d, dtype=torch.float64)
    weights = random_weights(op, d, h, m, z)
    state = random_state(op, batch, h, m) if draw(st.booleans()) else None
    inputs = LAYOUTS[draw(st.sampled_from(list(LAYOUTS)))](inputs).requires_grad_(draw(st.booleans()))
    layout = LAYOUTS[draw(st.sampled_from(list(LAYOUTS)))]
    weights = type(weights)(*(layout(part).requires_grad_(draw(st.booleans())) for part in weights))
    if state is not None:
        state = type(state)(*(layout(part).requires_grad_(draw(st.booleans())) for part in state))
    return op, inputs, weights, None if lengths is None else torch.tensor(lengths), state, draw(st.booleans())
