"""Tells transformers' Auto classes and pipelines about this package's models.

Importing the Auto classes takes seconds, most of it torch. So nothing is imported here: each registration waits until
transformers itself imports the Auto classes that it concerns (or happens at once where that is already done).
"""

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import wrapt

_LAYERS = "transformers.modeling_layers"
_waiting: list[str] = []


def register() -> None:
    """Registers configurations, models, tokenizers and pipelines; safe to call again."""
    wrapt.register_post_import_hook(_import_waiting, _LAYERS)
    modeling, tokenization = f"{__package__}.modeling", f"{__package__}.tokenization"
    _register_with("configuration_auto", f"{modeling}.configuration_meta_lstm", _register_meta_lstm_config)
    _register_with("modeling_auto", f"{modeling}.modeling_meta_lstm", _register_meta_lstm_models)
    _register_with("configuration_auto", f"{modeling}.configuration_dmn", _register_dmn_config)
    _register_with("modeling_auto", f"{modeling}.modeling_dmn", _register_dmn_models)
    _register_with("modeling_auto", f"{modeling}.modeling_dmn_classification", _register_dmn_classifiers)
    _register_with("configuration_auto", f"{modeling}.configuration_gpt1", _register_gpt1_config)
    _register_with("modeling_auto", f"{modeling}.modeling_gpt1", _register_gpt1_models)
    # Imported by what it builds on, which may itself be on its way when the Auto classes are.
    _register_when(f"{modeling}.modeling_gpt1", f"{modeling}.modeling_gpt1_classification", _register_gpt1_classifier)
    _register_with("tokenization_auto", f"{tokenization}.tokenization_word", _register_word_tokenizer)
    _register_with("tokenization_auto", f"{tokenization}.tokenization_dmn", _register_dmn_tokenizer)
    _register_with("tokenization_auto", f"{tokenization}.tokenization_gpt1", _register_gpt1_tokenizer)
    wrapt.register_post_import_hook(_register_pipelines, "transformers.pipelines")


def _register_with(auto: str, home: str, register_classes: Callable[[ModuleType], None]) -> None:
    """Calls `register_classes(home module)` once both transformers' module of Auto classes and ours are imported."""
    _register_when(f"transformers.models.auto.{auto}", home, register_classes)


def _register_when(trigger: str, home: str, register_classes: Callable[[ModuleType], None]) -> None:
    """Imports `home` after the module `trigger`, and calls `register_classes` with it."""

    def import_home(_: ModuleType) -> None:
        layers = sys.modules.get(_LAYERS)
        if layers is not None and not hasattr(layers, "GradientCheckpointingLayer"):
            # The import of the layers led here, and models need them: wait until they are complete.
            _waiting.append(home)
        # Present already means that it is being imported and that this import led here: its own hook follows.
        elif home not in sys.modules:
            import_module(home)

    wrapt.register_post_import_hook(register_classes, home)
    wrapt.register_post_import_hook(import_home, trigger)


def _import_waiting(_: ModuleType) -> None:
    while _waiting:
        import_module(_waiting.pop(0))


def _register_meta_lstm_config(home: ModuleType) -> None:
    from transformers import AutoConfig

    AutoConfig.register(home.MetaLSTMConfig.model_type, home.MetaLSTMConfig, exist_ok=True)


def _register_meta_lstm_models(home: ModuleType) -> None:
    from transformers import AutoModel, AutoModelForSequenceClassification

    config = home.MetaLSTMConfig
    AutoModel.register(config, home.MetaLSTMModel, exist_ok=True)
    AutoModelForSequenceClassification.register(config, home.MetaLSTMForSequenceClassification, exist_ok=True)


def _register_word_tokenizer(home: ModuleType) -> None:
    from transformers import AutoTokenizer

    from .modeling.configuration_meta_lstm import MetaLSTMConfig

    AutoTokenizer.register(MetaLSTMConfig, tokenizer_class=home.WordTokenizer, exist_ok=True)


def _register_dmn_config(home: ModuleType) -> None:
    from transformers import AutoConfig

    AutoConfig.register(home.DMNConfig.model_type, home.DMNConfig, exist_ok=True)


def _register_dmn_models(home: ModuleType) -> None:
    from transformers import AutoModel, AutoModelForSeq2SeqLM

    AutoModel.register(home.DMNConfig, home.DMNModel, exist_ok=True)
    AutoModelForSeq2SeqLM.register(home.DMNConfig, home.DMNForQuestionAnswering, exist_ok=True)


def _register_dmn_classifiers(home: ModuleType) -> None:
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    config = home.DMNConfig
    AutoModelForSequenceClassification.register(config, home.DMNForSequenceClassification, exist_ok=True)
    AutoModelForTokenClassification.register(config, home.DMNForTokenClassification, exist_ok=True)


def _register_dmn_tokenizer(home: ModuleType) -> None:
    from transformers import AutoTokenizer

    from .modeling.configuration_dmn import DMNConfig

    AutoTokenizer.register(DMNConfig, tokenizer_class=home.DMNTokenizer, exist_ok=True)


def _register_gpt1_config(home: ModuleType) -> None:
    from transformers import AutoConfig

    AutoConfig.register(home.GPT1Config.model_type, home.GPT1Config, exist_ok=True)


def _register_gpt1_models(home: ModuleType) -> None:
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMultipleChoice

    AutoModel.register(home.GPT1Config, home.GPT1Model, exist_ok=True)
    AutoModelForCausalLM.register(home.GPT1Config, home.GPT1LMHeadModel, exist_ok=True)
    AutoModelForMultipleChoice.register(home.GPT1Config, home.GPT1DoubleHeadsModel, exist_ok=True)


def _register_gpt1_classifier(home: ModuleType) -> None:
    from transformers import AutoModelForSequenceClassification

    AutoModelForSequenceClassification.register(home.GPT1Config, home.GPT1ForSequenceClassification, exist_ok=True)


def _register_gpt1_tokenizer(home: ModuleType) -> None:
    from transformers.models.auto.tokenization_auto import REGISTERED_TOKENIZER_CLASSES

    REGISTERED_TOKENIZER_CLASSES[home.GPT1Tokenizer.__name__] = home.GPT1Tokenizer


def _register_pipelines(pipelines: ModuleType) -> None:
    from transformers import AutoModelForMultipleChoice, AutoModelForSeq2SeqLM

    # A subclass of transformers' own pipeline, which it equals for every model without tasks; loaded when asked for.
    pipelines.PIPELINE_REGISTRY.supported_tasks["text-classification"]["impl"] = (
        f"{__package__}.pipelines.text_classification.MultiTaskTextClassificationPipeline"
    )
    pipelines.PIPELINE_REGISTRY.supported_tasks["multiple-choice"] = {
        "impl": f"{__package__}.pipelines.multiple_choice.MultipleChoicePipeline",
        "pt": (AutoModelForMultipleChoice,),
        "default": {},
        "type": "text",
    }
    pipelines.PIPELINE_REGISTRY.supported_tasks["memory-question-answering"] = {
        "impl": f"{__package__}.pipelines.memory_question_answering.MemoryQuestionAnsweringPipeline",
        "pt": (AutoModelForSeq2SeqLM,),
        "default": {},
        "type": "text",
    }
