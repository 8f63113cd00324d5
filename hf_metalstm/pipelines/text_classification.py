"""Text classification with a model of several tasks: which task answers is chosen call by call."""

from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, TextClassificationPipeline
from transformers.pipelines.text_classification import ClassificationFunction, sigmoid, softmax


class MultiTaskTextClassificationPipeline(TextClassificationPipeline):
    """`pipeline("text-classification")`, which takes `task_name` for models whose config has `tasks`.

    A call without it is answered by the model's active task. For all other models it is transformers' own pipeline.
    Nothing of the model changes from call to call, so that one pipeline may serve several threads.

    Its `save_pretrained` puts this file beside a model with tasks. A process without this package chooses tasks with
    `pipeline("multi-task-text-classification", model=folder, trust_remote_code=True)`.

    Example:
        >>> from transformers import pipeline
        >>> from hf_metalstm import MetaLSTMConfig, MetaLSTMForSequenceClassification, WordTokenizer
        >>> tokenizer = WordTokenizer.train_from_iterator(["an unpredictable plot"])
        >>> tasks = {"books": ["bad", "good"], "colours": ["red", "green", "blue"]}
        >>> config = MetaLSTMConfig(vocab_size=len(tokenizer), hidden_size=8, tasks=tasks, active_task="books")
        >>> model = MetaLSTMForSequenceClassification(config)
        >>> classify = pipeline("text-classification", model=model, tokenizer=tokenizer)
        >>> sorted(answer["label"] for answer in classify("a plot", task_name="colours", top_k=None))
        ['blue', 'green', 'red']
    """

    def __init__(self, **parts: Any):
        super().__init__(**parts)
        if getattr(self.model.config, "tasks", None) is not None:
            # Where `save_pretrained` looks. A name of its own: whoever asks for "text-classification" needs no trust.
            self._registered_impl = {
                "multi-task-text-classification": {
                    "impl": type(self),
                    "pt": (AutoModelForSequenceClassification,),
                    "type": "text",
                }
            }

    def __call__(self, inputs: Any, **parameters: Any) -> Any:  # type: ignore[override]
        # transformers looks at the first of the texts to tell what they are.
        if isinstance(inputs, list) and not inputs:
            return []
        return super().__call__(inputs, **parameters)

    # Subclasses of Pipeline name their own parameters; its type hints know only **parameters.
    def _sanitize_parameters(
        self, function_to_apply: Any = None, top_k: Any = "", task_name: str | None = None, **tokenizer_arguments: Any
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        preprocess, forward, postprocess = super()._sanitize_parameters(function_to_apply, top_k, **tokenizer_arguments)
        if task_name is not None:
            if getattr(self.model.config, "tasks", None) is None:
                raise ValueError(f"task_name is {task_name!r}, but the model has no tasks: leave it out")
            self.model.config.task_id(task_name)
            preprocess["task_name"] = postprocess["task_name"] = task_name
        return preprocess, forward, postprocess

    def preprocess(  # type: ignore[override]
        self, inputs: Any, task_name: str | None = None, **tokenizer_arguments: Any
    ) -> dict[str, Any]:
        encoded = super().preprocess(inputs, **tokenizer_arguments)
        if getattr(self.model.config, "tasks", None) is not None:
            encoded["task_ids"] = torch.tensor([self.model.config.task_id(self._task(task_name))])
        return encoded

    def postprocess(  # type: ignore[override]
        self,
        model_outputs: Any,
        function_to_apply: ClassificationFunction | None = None,
        top_k: int | None = 1,
        _legacy: bool = True,
        task_name: str | None = None,
    ) -> Any:
        if getattr(self.model.config, "tasks", None) is None:
            return super().postprocess(model_outputs, function_to_apply, top_k, _legacy)
        labels = self.model.config.tasks[self._task(task_name)]
        logits = model_outputs["logits"][0, : len(labels)].float().numpy()
        if function_to_apply == ClassificationFunction.NONE:
            scores = logits
        else:
            scores = sigmoid(logits) if function_to_apply == ClassificationFunction.SIGMOID else softmax(logits)
        answers = [{"label": label, "score": score.item()} for label, score in zip(labels, scores, strict=True)]
        best_first = sorted(answers, key=lambda answer: answer["score"], reverse=True)
        # As in transformers: without top_k one answer, not a list.
        return best_first[0] if _legacy else best_first[:top_k]

    def _task(self, task_name: str | None) -> str:
        config = self.model.config
        name = config.active_task if task_name is None else task_name
        if name is None:
            raise ValueError(
                f"the model has {len(config.tasks)} tasks and no active one: give task_name, one of "
                f"{', '.join(config.tasks)}, or call model.set_active_task(name)"
            )
        return name
