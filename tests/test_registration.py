"""Importing the package is cheap, and transformers knows its classes whichever is imported first."""

import subprocess
import sys

import pytest

import hf_metalstm


def run(script: str, tmp_path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_imports_neither_torch_nor_the_auto_classes(tmp_path):
    script = "import sys, hf_metalstm; print([m for m in ('torch', 'transformers', 'datasets') if m in sys.modules])"
    assert run(script, tmp_path).strip() == "[]"


ASK = """
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer
from transformers.pipelines import PIPELINE_REGISTRY
config = AutoConfig.for_model("meta_lstm", vocab_size=9, hidden_size=3)
models = [auto.from_config(config) for auto in (AutoModel, AutoModelForSequenceClassification)]
print(*(type(model).__name__ for model in models))
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING
print(TOKENIZER_MAPPING[type(config)])
print(PIPELINE_REGISTRY.supported_tasks["text-classification"]["impl"])
"""


# The plain order, this package and then the Auto classes, is what test_sharing.py runs.
@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        "from transformers import AutoModel, AutoTokenizer, pipeline\nimport hf_metalstm",
        "from hf_metalstm.modeling.modeling_meta_lstm import MetaLSTMModel",
        "from hf_metalstm import WordTokenizer",
    ],
)
def test_the_auto_classes_know_the_models_in_any_order_of_imports(first, tmp_path):
    models, tokenizer, pipeline = run(f"{first}\n{ASK}", tmp_path).strip().splitlines()
    assert models == "MetaLSTMModel MetaLSTMForSequenceClassification"
    assert "WordTokenizer" in tokenizer
    assert pipeline == "hf_metalstm.pipelines.text_classification.MultiTaskTextClassificationPipeline"


def test_every_public_name_loads_and_unknown_names_do_not():
    assert sorted(hf_metalstm.__all__) == sorted([*hf_metalstm._HOMES, "__version__"])
    for name in hf_metalstm.__all__:
        assert getattr(hf_metalstm, name) is not None and name in dir(hf_metalstm)
    with pytest.raises(AttributeError, match="no attribute 'MetaLSTN'"):
        hf_metalstm.MetaLSTN  # noqa: B018
