"""Meta-LSTM and other classic NLP models as members of the Hugging Face stack.

Importing the package is cheap: public names load when they are used, and the Auto classes and pipelines of transformers
learn about the models at the moment they are themselves imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import _registration
from ._version import __version__

if TYPE_CHECKING:
    from .data.conll import read_conll
    from .data.conllu import read_conllu
    from .data.dmn_collator import DataCollatorForDMN
    from .data.tag_alignment import align_dataset
    from .data.tag_schemes import convert_tags, detect_scheme
    from .data.task_input_collator import DataCollatorForTaskInputs
    from .data.token_classification_collator import DataCollatorForTagging
    from .metrics.evaluate_tagging import Conlleval, StrictChunks
    from .metrics.tagging import TaggingMetrics, score_tags
    from .modeling.character_features import CharacterVocabulary
    from .modeling.configuration_dmn import DMNConfig
    from .modeling.configuration_gpt1 import GPT1Config
    from .modeling.configuration_meta_lstm import MetaLSTMConfig
    from .modeling.crf import LinearChainCRF
    from .modeling.modeling_dmn import DMNForQuestionAnswering, DMNModel, DMNPreTrainedModel
    from .modeling.modeling_dmn_classification import DMNForSequenceClassification, DMNForTokenClassification
    from .modeling.modeling_gpt1 import GPT1DoubleHeadsModel, GPT1LMHeadModel, GPT1Model, GPT1PreTrainedModel
    from .modeling.modeling_gpt1_classification import GPT1ForSequenceClassification
    from .modeling.modeling_meta_lstm import MetaLSTMForSequenceClassification, MetaLSTMModel, MetaLSTMPreTrainedModel
    from .modeling.tag_constraints import allowed_transitions
    from .pipelines.memory_question_answering import MemoryQuestionAnsweringPipeline
    from .pipelines.multiple_choice import MultipleChoicePipeline
    from .pipelines.text_classification import MultiTaskTextClassificationPipeline
    from .tokenization.tokenization_dmn import DMNTokenizer
    from .tokenization.tokenization_gpt1 import GPT1Tokenizer
    from .tokenization.tokenization_word import WordTokenizer
    from .training.multitask_trainer import MultiTaskTrainer

# Where each public name lives. The models' files travel to the Hub, so they are named in full rather than re-exported.
_HOMES = {
    "CharacterVocabulary": "modeling.character_features",
    "Conlleval": "metrics.evaluate_tagging",
    "DMNConfig": "modeling.configuration_dmn",
    "DMNForQuestionAnswering": "modeling.modeling_dmn",
    "DMNForSequenceClassification": "modeling.modeling_dmn_classification",
    "DMNForTokenClassification": "modeling.modeling_dmn_classification",
    "DMNModel": "modeling.modeling_dmn",
    "DMNPreTrainedModel": "modeling.modeling_dmn",
    "DMNTokenizer": "tokenization.tokenization_dmn",
    "DataCollatorForDMN": "data.dmn_collator",
    "DataCollatorForTagging": "data.token_classification_collator",
    "DataCollatorForTaskInputs": "data.task_input_collator",
    "GPT1Config": "modeling.configuration_gpt1",
    "GPT1DoubleHeadsModel": "modeling.modeling_gpt1",
    "GPT1ForSequenceClassification": "modeling.modeling_gpt1_classification",
    "GPT1LMHeadModel": "modeling.modeling_gpt1",
    "GPT1Model": "modeling.modeling_gpt1",
    "GPT1PreTrainedModel": "modeling.modeling_gpt1",
    "GPT1Tokenizer": "tokenization.tokenization_gpt1",
    "LinearChainCRF": "modeling.crf",
    "MemoryQuestionAnsweringPipeline": "pipelines.memory_question_answering",
    "MetaLSTMConfig": "modeling.configuration_meta_lstm",
    "MetaLSTMForSequenceClassification": "modeling.modeling_meta_lstm",
    "MetaLSTMModel": "modeling.modeling_meta_lstm",
    "MetaLSTMPreTrainedModel": "modeling.modeling_meta_lstm",
    "MultiTaskTextClassificationPipeline": "pipelines.text_classification",
    "MultiTaskTrainer": "training.multitask_trainer",
    "MultipleChoicePipeline": "pipelines.multiple_choice",
    "StrictChunks": "metrics.evaluate_tagging",
    "TaggingMetrics": "metrics.tagging",
    "WordTokenizer": "tokenization.tokenization_word",
    "align_dataset": "data.tag_alignment",
    "allowed_transitions": "modeling.tag_constraints",
    "convert_tags": "data.tag_schemes",
    "detect_scheme": "data.tag_schemes",
    "read_conll": "data.conll",
    "read_conllu": "data.conllu",
    "score_tags": "metrics.tagging",
}

__all__ = [  # noqa: F822
    "CharacterVocabulary",
    "Conlleval",
    "DMNConfig",
    "DMNForQuestionAnswering",
    "DMNForSequenceClassification",
    "DMNForTokenClassification",
    "DMNModel",
    "DMNPreTrainedModel",
    "DMNTokenizer",
    "DataCollatorForDMN",
    "DataCollatorForTagging",
    "DataCollatorForTaskInputs",
    "GPT1Config",
    "GPT1DoubleHeadsModel",
    "GPT1ForSequenceClassification",
    "GPT1LMHeadModel",
    "GPT1Model",
    "GPT1PreTrainedModel",
    "GPT1Tokenizer",
    "LinearChainCRF",
    "MemoryQuestionAnsweringPipeline",
    "MetaLSTMConfig",
    "MetaLSTMForSequenceClassification",
    "MetaLSTMModel",
    "MetaLSTMPreTrainedModel",
    "MultiTaskTextClassificationPipeline",
    "MultiTaskTrainer",
    "MultipleChoicePipeline",
    "StrictChunks",
    "TaggingMetrics",
    "WordTokenizer",
    "__version__",
    "align_dataset",
    "allowed_transitions",
    "convert_tags",
    "detect_scheme",
    "read_conll",
    "read_conllu",
    "score_tags",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


_registration.register()
