"""MetaLSTMConfig: what it accepts, what it refuses and by which words, and that a file brings it back whole."""

import copy
import json

import pytest

from hf_metalstm import MetaLSTMConfig

LABELS = ["negative", "positive"]
# Not in alphabetical order: JSON files sort their keys, and task ids must not follow.
TASKS = {"toys": LABELS, "books": ["bad", "middling", "good"], "apparel": LABELS}


def test_the_order_of_the_tasks_survives_a_file(tmp_path):
    config = MetaLSTMConfig(tasks=TASKS, active_task="books")
    config.save_pretrained(tmp_path)
    assert list(json.loads((tmp_path / "config.json").read_text())["tasks"]) == sorted(TASKS)
    again = MetaLSTMConfig.from_pretrained(tmp_path)
    assert list(again.tasks) == list(TASKS) and again.tasks == TASKS
    assert [again.task_id(name) for name in TASKS] == [0, 1, 2]
    assert (again.active_task, again.id2label) == ("books", {0: "bad", 1: "middling", 2: "good"})
    assert again.to_dict() == {**config.to_dict(), "auto_map": again.auto_map}


def test_tasks_added_later_come_last_after_a_file_too(tmp_path):
    config = MetaLSTMConfig(tasks=TASKS)
    assert config.add_task("aardvarks", ["a", "b"]) == 3
    config.save_pretrained(tmp_path)
    assert MetaLSTMConfig.from_pretrained(tmp_path).task_id("aardvarks") == 3


def test_labels_follow_the_active_task():
    config = MetaLSTMConfig(tasks=TASKS)
    assert config.active_task is None and config.num_labels == 3
    assert config.id2label == {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
    config.set_active_task("toys")
    assert (config.id2label, config.label2id) == ({0: "negative", 1: "positive"}, {"negative": 0, "positive": 1})
    config.set_active_task(None)
    assert config.num_labels == 3
    assert MetaLSTMConfig(tasks={"a": LABELS, "b": LABELS}).id2label == {0: "negative", 1: "positive"}
    assert MetaLSTMConfig(tasks={"a": LABELS}).active_task == "a"


def test_labels_without_an_active_task_grow_with_the_tasks():
    config = MetaLSTMConfig(tasks={"a": LABELS, "b": LABELS})
    config.add_task("c", ["1", "2", "3", "4"])
    assert config.active_task is None and list(config.id2label.values()) == [f"LABEL_{index}" for index in range(4)]


def test_sharing_follows_the_tasks_unless_it_is_given():
    assert MetaLSTMConfig().sharing == "single"
    assert MetaLSTMConfig(tasks=TASKS).sharing == "meta"
    assert MetaLSTMConfig(tasks={"a": LABELS}, sharing="single").sharing == "single"


def test_label_names_without_tasks_are_transformers_own(tmp_path):
    config = MetaLSTMConfig(id2label={0: "no", 1: "yes", 2: "maybe"}, label2id={"no": 0, "yes": 1, "maybe": 2})
    config.save_pretrained(tmp_path)
    assert MetaLSTMConfig.from_pretrained(tmp_path).id2label == {0: "no", 1: "yes", 2: "maybe"}
    assert MetaLSTMConfig.from_pretrained(tmp_path, num_labels=5).num_labels == 5
    assert copy.deepcopy(config).to_dict() == config.to_dict()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": 0}, "hidden_size is 0, but must be an integer of at least 1"),
        ({"hidden_size": 10.5}, "hidden_size is 10.5, but must be an integer"),
        ({"classifier_dropout": 1.0}, r"classifier_dropout is 1.0, but must lie in \[0, 1\)"),
        ({"cell": "gru"}, "cell is 'gru'; allowed: 'meta_lstm', 'lstm'"),
        ({"sharing": "all"}, "sharing is 'all'; allowed: 'single', 'meta'"),
        ({"pooling": "first"}, "pooling is 'first'; allowed: 'last', 'mean', 'max', 'concat'"),
        ({"pad_token_id": 50, "vocab_size": 50}, "pad_token_id is 50, but vocab_size is 50"),
        ({"tasks": {}}, "tasks is empty"),
        ({"tasks": ["a", "b"]}, "must map each task to its label names"),
        ({"tasks": {"a": "positive"}}, r"tasks\['a'\] is 'positive'; it must be a list"),
        ({"tasks": {"a": 2}}, r"tasks\['a'\] is 2; it must be a list"),
        ({"tasks": {"a": ["x"]}}, "at least two different label names"),
        ({"tasks": {"a": ["x", "x"]}}, "at least two different label names"),
        ({"tasks": TASKS, "sharing": "single"}, "sharing='single' is for one task, but there are 3"),
        ({"tasks": TASKS, "cell": "lstm"}, "which cell='lstm' does not have"),
        ({"sharing": "meta"}, "sharing='meta' needs tasks"),
        ({"tasks": TASKS, "num_labels": 3}, "num_labels is 3, but the tasks say"),
        ({"tasks": TASKS, "task_order": ["toys"]}, "task_order is"),
        ({"tasks": TASKS, "active_task": "bokks"}, "'bokks'; the tasks are toys, books, apparel; did you mean 'books'"),
        ({"active_task": "books"}, "there is no task 'books'|has no tasks"),
        ({"num_labels": 3, "id2label": {0: "a", 1: "b"}}, "num_labels is 3, but id2label has 2"),
        ({"id2label": {0: "a", 1: "b"}, "label2id": {"a": 1, "b": 0}}, "disagree"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_what_is_allowed(settings, message):
    with pytest.raises(ValueError, match=message):
        MetaLSTMConfig(**settings)


def test_a_task_that_cannot_be_added_leaves_the_config_as_it_was():
    config = MetaLSTMConfig(tasks=TASKS)
    before = config.to_dict()
    for name, labels, message in (
        ("books", LABELS, "task 'books' exists already"),
        ("new", ["one"], "at least two different"),
        ("new", "good", "'good'; it must be a list"),
    ):
        with pytest.raises(ValueError, match=message):
            config.add_task(name, labels)
    assert config.to_dict() == before
    with pytest.raises(ValueError, match="cannot add task 'new': sharing is 'single'"):
        MetaLSTMConfig().add_task("new", LABELS)
