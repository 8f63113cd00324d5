"""Tells transformers' Auto classes and pipelines about this package's models.

Importing the Auto classes takes seconds, most of it torch. So nothing is imported here: each registration waits until
transformers itself imports the module that it concerns (or happens at once where that is already done).
"""

from types import ModuleType

import wrapt


def register() -> None:
    """Registers configurations, models, tokenizers and pipelines; safe to call again."""
    auto = "transformers.models.auto"
    wrapt.register_post_import_hook(_register_configs, f"{auto}.configuration_auto")
    wrapt.register_post_import_hook(_register_models, f"{auto}.modeling_auto")
    wrapt.register_post_import_hook(_register_tokenizers, f"{auto}.tokenization_auto")
    wrapt.register_post_import_hook(_register_pipelines, "transformers.pipelines")


def _register_configs(module: ModuleType) -> None:
    from .modeling.configuration_meta_lstm import MetaLSTMConfig

    module.AutoConfig.register(MetaLSTMConfig.model_type, MetaLSTMConfig, exist_ok=True)


def _register_models(module: ModuleType) -> None:
    from .modeling.modeling_meta_lstm import MetaLSTMConfig, MetaLSTMForSequenceClassification, MetaLSTMModel

    module.AutoModel.register(MetaLSTMConfig, MetaLSTMModel, exist_ok=True)
    module.AutoModelForSequenceClassification.register(MetaLSTMConfig, MetaLSTMForSequenceClassification, exist_ok=True)


def _register_tokenizers(module: ModuleType) -> None:
    from .modeling.configuration_meta_lstm import MetaLSTMConfig
    from .tokenization.tokenization_word import WordTokenizer

    module.AutoTokenizer.register(MetaLSTMConfig, tokenizer_class=WordTokenizer, exist_ok=True)


def _register_pipelines(module: ModuleType) -> None:
    # A subclass of transformers' own pipeline, which it equals for every model without tasks; loaded when asked for.
    module.PIPELINE_REGISTRY.supported_tasks["text-classification"]["impl"] = (
        "hf_metalstm.pipelines.text_classification.MultiTaskTextClassificationPipeline"
    )
