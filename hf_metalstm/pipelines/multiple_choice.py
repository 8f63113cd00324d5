"""Multiple choice: a context and several answers, ranked by how well each continues the context."""

from typing import Any

import torch
from transformers import AutoModelForMultipleChoice, Pipeline

_KEYS = ("context", "answers")


class MultipleChoicePipeline(Pipeline):
    """`pipeline("multiple-choice")` for models with a head over choices, such as `GPT1DoubleHeadsModel`.

    The tokenizer builds the inputs (`build_multiple_choice`); the scores of a question's answers sum to 1. Its
    `save_pretrained` puts this file beside the model, so that a process without the package can load it too, with
    `pipeline("multiple-choice", model=folder, trust_remote_code=True)`.

    A call takes `{"context": text, "answers": [texts]}`, a list of these, or `context=..., answers=[...]`, and:

    * `top_k`: how many answers to return; None means all;
    * `max_length`: tokens of context and answer at most; the context is cut. None means the tokenizer's limit.

    It returns, best first, a list of `{"answer": text, "index": its place among the answers, "score": probability}` for
    each question.

    Example:
        >>> from transformers import OpenAIGPTConfig, OpenAIGPTDoubleHeadsModel
        >>> from hf_metalstm import GPT1Tokenizer
        >>> from hf_metalstm.pipelines.multiple_choice import MultipleChoicePipeline
        >>> tokenizer = GPT1Tokenizer.train_from_iterator(["it rained", "he took an umbrella"])
        >>> config = OpenAIGPTConfig(vocab_size=len(tokenizer), n_embd=8, n_layer=1, n_head=1)
        >>> choose = MultipleChoicePipeline(model=OpenAIGPTDoubleHeadsModel(config), tokenizer=tokenizer)
        >>> ranking = choose(context="it rained", answers=["he took an umbrella", "it rained"])
        >>> sorted(answer["index"] for answer in ranking)
        [0, 1]
    """

    _load_tokenizer = True  # type: ignore[assignment]
    _load_processor = False  # type: ignore[assignment]
    _load_image_processor = False  # type: ignore[assignment]
    _load_feature_extractor = False  # type: ignore[assignment]

    def __init__(self, **parts: Any):
        super().__init__(**parts)
        # Where `save_pretrained` looks for what it writes into the config.
        self._registered_impl = {
            "multiple-choice": {"impl": type(self), "pt": (AutoModelForMultipleChoice,), "type": "text"}
        }

    def __call__(  # type: ignore[override]
        self,
        inputs: Any = None,
        *,
        context: str | None = None,
        answers: list[str] | None = None,
        **parameters: Any,
    ) -> Any:
        if inputs is None:
            inputs = {"context": context, "answers": answers}
        elif context is not None or answers is not None:
            raise ValueError("give either one mapping with context and answers, or both by name, not both ways")
        if isinstance(inputs, list):
            for number, one in enumerate(inputs):
                _check(one, f"question {number}")
            if not inputs:
                return []
        elif isinstance(inputs, (dict, str)):
            _check(inputs, "the question")
        return super().__call__(inputs, **parameters)

    def _sanitize_parameters(  # type: ignore[override]
        self, top_k: int | None = None, max_length: int | None = None
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k is {top_k}, but must be at least 1, or None for all answers")
        preprocess = {} if max_length is None else {"max_length": max_length}
        return preprocess, {}, {} if top_k is None else {"top_k": top_k}

    def preprocess(self, input_: Any, max_length: int | None = None) -> dict[str, Any]:  # type: ignore[override]
        _check(input_, "the question")
        assert self.tokenizer is not None
        # What the model can read is the limit, even where the tokenizer was made for longer texts.
        limits = [self.tokenizer.model_max_length, getattr(self.model.config, "max_position_embeddings", None)]
        limit = min(value for value in (*limits, max_length) if value is not None)
        answers = list(input_["answers"])
        built = self.tokenizer.build_multiple_choice(input_["context"], answers, max_length=limit)
        places = torch.tensor([built.pop("mc_token_ids")])
        width = max(map(len, built["input_ids"]))
        pad = self.tokenizer.pad_token_id
        rows = [ids + [pad] * (width - len(ids)) for ids in built["input_ids"]]
        mask = [real + [0] * (width - len(real)) for real in built["attention_mask"]]
        # A question is a batch of its own: others may have another number of answers.
        return {
            "answers": answers,
            "input_ids": torch.tensor([rows]),
            "attention_mask": torch.tensor([mask]),
            "mc_token_ids": places,
        }

    def _forward(self, input_tensors: dict[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        answers = input_tensors.pop("answers")
        # Padding is on the right and the extract tokens stand before it, so a model that knows no mask of choices, as
        # transformers' OpenAIGPT, gives the same.
        if self.model.config.model_type == "openai-gpt":
            input_tensors.pop("attention_mask")
        outputs = self.model(**input_tensors)
        logits = outputs.mc_logits if "mc_logits" in outputs else outputs.logits
        return {"answers": answers, "logits": logits}

    def postprocess(self, model_outputs: Any, top_k: int | None = None) -> list[dict[str, Any]]:  # type: ignore[override]
        scores = model_outputs["logits"][0].float().softmax(-1).tolist()
        answers = [
            {"answer": answer, "index": index, "score": score}
            for index, (answer, score) in enumerate(zip(model_outputs["answers"], scores, strict=True))
        ]
        return sorted(answers, key=lambda answer: -answer["score"])[:top_k]


def _check(question: Any, name: str) -> None:
    if not isinstance(question, dict) or any(question.get(key) is None for key in _KEYS):
        raise ValueError(f"{name} is {question!r:.80}, expected {{'context': text, 'answers': [texts]}}")
    for key in question:
        if key not in _KEYS:
            raise ValueError(f"{name} has {key!r}, which is not known: it takes context and answers")
