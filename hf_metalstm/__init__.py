"""Meta-LSTM and other classic NLP models as members of the Hugging Face stack.

Importing the package is cheap: public names load when they are used, and the Auto classes and pipelines of transformers
learn about the models at the moment they are themselves imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import _registration
from ._version import __version__

if TYPE_CHECKING:
    from .data.dmn_collator import DataCollatorForDMN
    from .modeling.configuration_meta_lstm import MetaLSTMConfig
    from .modeling.modeling_meta_lstm import (
        MetaLSTMForSequenceClassification,
        MetaLSTMModel,
        MetaLSTMPreTrainedModel,
    )
    from .pipelines.text_classification import MultiTaskTextClassificationPipeline
    from .tokenization.tokenization_dmn import DMNTokenizer
    from .tokenization.tokenization_word import WordTokenizer
    from .training.multitask_trainer import MultiTaskTrainer

# Where each public name lives. The models' files travel to the Hub, so they are named in full rather than re-exported.
_HOMES = {
    "DMNTokenizer": "tokenization.tokenization_dmn",
    "DataCollatorForDMN": "data.dmn_collator",
    "MetaLSTMConfig": "modeling.configuration_meta_lstm",
    "MetaLSTMForSequenceClassification": "modeling.modeling_meta_lstm",
    "MetaLSTMModel": "modeling.modeling_meta_lstm",
    "MetaLSTMPreTrainedModel": "modeling.modeling_meta_lstm",
    "MultiTaskTextClassificationPipeline": "pipelines.text_classification",
    "MultiTaskTrainer": "training.multitask_trainer",
    "WordTokenizer": "tokenization.tokenization_word",
}

__all__ = [  # noqa: F822
    "DMNTokenizer",
    "DataCollatorForDMN",
    "MetaLSTMConfig",
    "MetaLSTMForSequenceClassification",
    "MetaLSTMModel",
    "MetaLSTMPreTrainedModel",
    "MultiTaskTextClassificationPipeline",
    "MultiTaskTrainer",
    "WordTokenizer",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


_registration.register()
