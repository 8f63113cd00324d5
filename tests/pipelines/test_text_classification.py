"""`pipeline("text-classification")` on models of several tasks, of one task, and of transformers itself."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, TextClassificationPipeline, pipeline
from transformers.pipelines.pt_utils import KeyDataset

from hf_metalstm import MetaLSTMConfig, MetaLSTMForSequenceClassification, WordTokenizer
from hf_metalstm.pipelines.text_classification import MultiTaskTextClassificationPipeline

TASKS = {"books": ["bad", "good"], "colours": ["red", "green", "blue"], "dvd": ["minus", "plus"]}
TEXTS = ["a good book", "red", "a book a book a book a red book", "", "good"]


@pytest.fixture(scope="module")
def tokenizer():
    return WordTokenizer.train_from_iterator(["a good red book"])


def make_model(tokenizer, **settings):
    torch.manual_seed(1)
    sizes = dict(embedding_size=6, hidden_size=5, meta_size=4, z_size=3)
    return MetaLSTMForSequenceClassification(MetaLSTMConfig(vocab_size=len(tokenizer), **sizes, **settings)).eval()


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    make_model(tokenizer, tasks=TASKS, active_task="dvd").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def classify(folder):
    return pipeline("text-classification", model=str(folder))


def expected(model, tokenizer, text, task):
    ids = torch.tensor([tokenizer(text).input_ids])
    with torch.no_grad():
        logits = model(ids, task_ids=torch.tensor([list(TASKS).index(task)])).logits[0, : len(TASKS[task])]
    return dict(zip(TASKS[task], logits.softmax(0).tolist(), strict=True))


@pytest.mark.parametrize("task", [None, *TASKS])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_each_call_is_answered_by_its_task_in_input_order(classify, tokenizer, task, batch_size):
    settings = {} if task is None else {"task_name": task}
    answers = classify(TEXTS, top_k=None, batch_size=batch_size, **settings)
    assert len(answers) == len(TEXTS)
    for text, answer in zip(TEXTS, answers, strict=True):
        scores = {one["label"]: one["score"] for one in answer}
        assert scores == pytest.approx(expected(classify.model, tokenizer, text, task or "dvd"), abs=1e-6)
        assert [one["score"] for one in answer] == sorted(scores.values(), reverse=True)


def test_one_text_gives_the_best_label_alone(classify, tokenizer):
    scores = expected(classify.model, tokenizer, "red", "colours")
    best = max(scores, key=scores.get)
    assert classify("red", task_name="colours")[0]["label"] == best
    assert [one["label"] for one in classify("red", task_name="colours", top_k=2)] == sorted(
        scores, key=scores.get, reverse=True
    )[:2]


def test_logits_and_sigmoids_can_be_had(classify, tokenizer):
    logits = {one["label"]: one["score"] for one in classify("red", function_to_apply="none", top_k=None)}
    sigmoids = {one["label"]: one["score"] for one in classify("red", function_to_apply="sigmoid", top_k=None)}
    for label in TASKS["dvd"]:
        assert sigmoids[label] == pytest.approx(torch.tensor(logits[label]).sigmoid().item(), abs=1e-6)


def test_a_task_can_be_chosen_for_all_calls(folder):
    classify = pipeline("text-classification", model=str(folder), task_name="colours")
    assert classify("red")[0]["label"] in TASKS["colours"]
    assert classify("red", task_name="books")[0]["label"] in TASKS["books"]


def test_data_sets_generators_and_pairs_are_read_like_lists(classify):
    expected = classify(TEXTS, task_name="colours")
    dataset = KeyDataset(Dataset.from_dict({"text": TEXTS}), "text")
    assert list(classify(dataset, task_name="colours")) == expected
    assert list(classify((text for text in TEXTS), task_name="colours")) == expected
    assert classify([{"text": text} for text in TEXTS], task_name="colours") == expected


def test_arguments_of_the_tokenizer_pass_through(classify):
    short = classify("a book", task_name="colours", top_k=None)
    cut = classify("a book is good", task_name="colours", top_k=None, truncation=True, max_length=2)
    assert cut == short != classify("a book is good", task_name="colours", top_k=None)


def test_nothing_gives_nothing(classify):
    assert classify([]) == []


def test_a_call_changes_nothing_for_others(classify, tokenizer):
    before = dict(classify.model.config.id2label)
    jobs = [(text, task) for text in TEXTS[:3] for task in TASKS] * 5
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda job: classify(job[0], task_name=job[1])[0], jobs))
    for (text, task), answer in zip(jobs, answers, strict=True):
        scores = expected(classify.model, tokenizer, text, task)
        assert answer["label"] == max(scores, key=scores.get)
    assert classify.model.config.id2label == before == {0: "minus", 1: "plus"}


def test_an_unknown_task_names_the_nearest(classify):
    with pytest.raises(ValueError, match="no task 'bokks'; the tasks are books, colours, dvd; did you mean 'books'"):
        classify("red", task_name="bokks")


def test_without_any_task_the_choice_is_asked_for(tokenizer):
    model = make_model(tokenizer, tasks=TASKS)
    classify = MultiTaskTextClassificationPipeline(model=model, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="3 tasks and no active one: give task_name, one of books, colours, dvd"):
        classify("red")


def test_a_model_without_tasks_is_served_as_by_transformers(tokenizer):
    model = make_model(tokenizer, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1})
    ours = pipeline("text-classification", model=model, tokenizer=tokenizer)
    assert type(ours) is MultiTaskTextClassificationPipeline
    stock = TextClassificationPipeline(model=model, tokenizer=tokenizer)
    assert ours(TEXTS) == stock(TEXTS) and ours("red", top_k=None) == stock("red", top_k=None)
    with pytest.raises(ValueError, match="task_name is 'books', but the model has no tasks"):
        ours("red", task_name="books")


def test_models_of_transformers_are_served_as_before(tokenizer, tmp_path):
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    model = BertForSequenceClassification.from_pretrained(tmp_path)
    ours = pipeline("text-classification", model=model, tokenizer=tokenizer)
    stock = TextClassificationPipeline(model=model, tokenizer=tokenizer)
    assert ours(TEXTS) == stock(TEXTS)
    assert ours(TEXTS, top_k=None, batch_size=2) == stock(TEXTS, top_k=None, batch_size=2)
    ours.save_pretrained(tmp_path / "again")
    assert not hasattr(model.config, "custom_pipelines") and not list((tmp_path / "again").glob("*classification.py"))
