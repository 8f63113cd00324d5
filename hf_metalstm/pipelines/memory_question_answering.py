"""Questions about stories, answered by a Dynamic Memory Network with the facts that it looked at."""

from collections.abc import Iterator, Mapping
from itertools import islice
from types import GeneratorType
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, Pipeline

_KEYS = ("facts", "context", "question")


class MemoryQuestionAnsweringPipeline(Pipeline):
    """`pipeline("memory-question-answering")` for `DMNForQuestionAnswering`.

    A call takes `{"facts": [sentences], "question": text}`, or a paragraph as `"context"`, which is split into
    sentences; a list, a data set or a generator of these; or the same by name. And:

    * `unknown_words`: "warn" lists words that the tokenizer does not know in one warning, "refuse" in an error,
      "allow" says nothing;
    * `num_beams`: answers that are followed up at a time (1 without it);
    * `max_new_tokens`: longest answer (20 without it);
    * `batch_size`: stories that are answered at a time.

    It returns for each story `answer` (its tokens, joined by blanks), `score` (the answer's probability, that of ending
    there included), `gates` (a list for each pass that was made, with a number for each fact) and `facts` (the
    sentences that the numbers belong to).

    Its `save_pretrained` puts this file beside the model, so that a process without the package can load it too, with
    `pipeline("memory-question-answering", model=folder, trust_remote_code=True)`.

    Example:
        >>> from transformers import pipeline
        >>> from hf_metalstm import DMNConfig, DMNForQuestionAnswering, DMNTokenizer
        >>> tokenizer = DMNTokenizer.train_from_iterator(["Ada ran to the attic.", "Where is Ada?"])
        >>> model = DMNForQuestionAnswering(DMNConfig(vocab_size=len(tokenizer), num_passes=2))
        >>> ask = pipeline("memory-question-answering", model=model, tokenizer=tokenizer)
        >>> answer = ask(context="Ada ran to the attic. Ada ran.", question="Where is Ada?")
        >>> sorted(answer), answer["facts"], len(answer["gates"]), len(answer["gates"][0])
        (['answer', 'facts', 'gates', 'score'], ['Ada ran to the attic.', 'Ada ran.'], 2, 2)
    """

    _load_tokenizer = True  # type: ignore[assignment]
    _load_processor = False  # type: ignore[assignment]
    _load_image_processor = False  # type: ignore[assignment]
    _load_feature_extractor = False  # type: ignore[assignment]

    def __init__(self, **parts: Any):
        super().__init__(**parts)
        if not hasattr(self.tokenizer, "encode_stories"):
            raise TypeError(
                f"the tokenizer is {type(self.tokenizer).__name__}, which knows no stories: give a DMNTokenizer"
            )
        # Where `save_pretrained` looks for what it writes into the config.
        self._registered_impl = {
            "memory-question-answering": {"impl": type(self), "pt": (AutoModelForSeq2SeqLM,), "type": "text"}
        }

    def __call__(  # type: ignore[override]
        self,
        inputs: Any = None,
        *,
        facts: list[str] | None = None,
        context: str | None = None,
        question: str | None = None,
        batch_size: int = 32,
        **parameters: Any,
    ) -> Any:
        by_name = {"facts": facts, "context": context, "question": question}
        by_name = {name: value for name, value in by_name.items() if value is not None}
        if inputs is None:
            inputs = by_name
        elif by_name:
            raise ValueError(f"give either a story, or {', '.join(_KEYS)} by name, not both ways")
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, but must be at least 1")
        if isinstance(inputs, (Mapping, str)):
            return super().__call__((_checked(inputs, "the story"),), **parameters)[0]
        answers = self._answer_all(iter(inputs), batch_size, parameters)
        return answers if isinstance(inputs, GeneratorType) else list(answers)

    def _answer_all(self, stories: Iterator[Any], batch_size: int, parameters: dict[str, Any]) -> Iterator[Any]:
        number = 0
        # A tuple is one input to transformers, whose own batching knows nothing of facts.
        while batch := tuple(islice(stories, batch_size)):
            for position, story in enumerate(batch):
                _checked(story, f"story {number + position}")
            yield from super().__call__(batch, story_number=number, **parameters)
            number += len(batch)

    def _sanitize_parameters(  # type: ignore[override]
        self,
        unknown_words: str | None = None,
        num_beams: int | None = None,
        max_new_tokens: int | None = None,
        story_number: int | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        preprocess = {"unknown_words": unknown_words, "story_number": story_number}
        forward = {"num_beams": num_beams, "max_new_tokens": max_new_tokens}
        for name, value in forward.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, but must be at least 1")
        given = [{name: value for name, value in part.items() if value is not None} for part in (preprocess, forward)]
        return given[0], given[1], {}

    def preprocess(  # type: ignore[override]
        self, input_: tuple[Mapping[str, Any], ...], unknown_words: str = "warn", story_number: int | None = None
    ) -> dict[str, Any]:
        tokenizer: Any = self.tokenizer
        first = 0 if story_number is None else story_number
        names = ["the story"] if story_number is None else [f"story {first + index}" for index in range(len(input_))]
        stories = [{name: story.get(name) for name in _KEYS} for story in input_]
        rows = tokenizer.encode_stories(stories, unknown_words=unknown_words, names=names)
        sentences = [tokenizer.facts_of(story) for story in stories]
        facts, tokens = max(map(len, sentences)), max(len(fact) for row in rows for fact in row["input_ids"])
        input_ids = torch.full((len(rows), facts, tokens), tokenizer.pad_token_id)
        mask = torch.zeros_like(input_ids)
        question_ids = torch.full((len(rows), max(len(row["question_ids"]) for row in rows)), tokenizer.pad_token_id)
        question_mask = torch.zeros_like(question_ids)
        for number, row in enumerate(rows):
            for place, fact in enumerate(row["input_ids"]):
                input_ids[number, place, : len(fact)] = torch.tensor(fact)
                mask[number, place, : len(fact)] = 1
            question_ids[number, : len(row["question_ids"])] = torch.tensor(row["question_ids"])
            question_mask[number, : len(row["question_ids"])] = 1
        return {
            "facts": sentences,
            "input_ids": input_ids,
            "attention_mask": mask,
            "question_ids": question_ids,
            "question_mask": question_mask,
        }

    def _forward(  # type: ignore[override]
        self, input_tensors: dict[str, Any], num_beams: int = 1, max_new_tokens: int = 20
    ) -> dict[str, Any]:
        facts = input_tensors.pop("facts")
        model: Any = self.model
        encoded = model.get_encoder()(**input_tensors)
        written = model.generate(
            encoder_outputs=encoded, num_beams=num_beams, max_new_tokens=max_new_tokens, do_sample=False
        )
        # generate() gives beams' and greedy scores on different scales; scoring what was written gives probabilities.
        output = model(encoder_outputs=encoded, decoder_input_ids=written[:, :-1])
        scores = _probabilities(output.logits, written[:, 1:], model.config.eos_token_id)
        return {
            "facts": facts,
            "answers": written[:, 1:],
            "scores": scores,
            "gates": encoded.gates,
            "passes": encoded.passes,
        }

    def postprocess(self, model_outputs: dict[str, Any]) -> list[dict[str, Any]]:  # type: ignore[override]
        tokenizer: Any = self.tokenizer
        answers = tokenizer.decode_answers(model_outputs["answers"])
        return [
            {
                "answer": " ".join(answer),
                "score": score,
                "gates": gates[:passes, : len(facts)].tolist(),
                "facts": facts,
            }
            for answer, score, gates, passes, facts in zip(
                answers,
                model_outputs["scores"].tolist(),
                model_outputs["gates"].float(),
                model_outputs["passes"].tolist(),
                model_outputs["facts"],
                strict=True,
            )
        ]


def _probabilities(logits: Tensor, tokens: Tensor, end: int | None) -> Tensor:
    """(answers,) probability of each answer's tokens, up to the end token and with it."""
    chosen = logits.float().log_softmax(-1).gather(2, tokens[:, :, None])[:, :, 0]
    if end is not None:
        ended = (tokens == end).long().cumsum(1)
        # Tokens behind the first end token fill up the shorter answers of a batch.
        chosen = chosen.masked_fill((ended > 0) & ~((ended == 1) & (tokens == end)), 0.0)
    return chosen.sum(1).exp()


def _checked(story: Any, name: str) -> Any:
    if not isinstance(story, Mapping):
        raise TypeError(f"{name} is {story!r:.60}, expected {{'facts': [sentences], 'question': text}}")
    for key in story:
        if key not in _KEYS:
            raise ValueError(f"{name} has {key!r}, which is not known: it takes {', '.join(_KEYS)}")
    return story
