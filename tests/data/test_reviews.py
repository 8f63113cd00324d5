"""Readers: the sixteen-task files, and any data set with text, label and task columns."""

import json
from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from hypothesis import given
from hypothesis import strategies as st

from hf_metalstm.data.reviews import drop_duplicates, load_multitask_dataset, read_review_tasks

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "mtl16"


def write_task(folder, name, train, test):
    for split, lines in (("train", train), ("test", test)):
        (folder / f"{name}.task.{split}").write_bytes(b"\n".join(lines) + b"\n")


@pytest.fixture
def folder(tmp_path):
    write_task(
        tmp_path, "books", [b"1\tgood", b"0\tbad", b"1\tcaf\xc3\xa9 !", b"0\tcaf\xe9 ?"], [b"1\tgood", b"0\tnew"]
    )
    write_task(tmp_path, "dvd", [b"1\ta", b"0\tb", b"1\t", b"0\td"], [b"0\tx", b"1\tx", b"1\td"])
    return tmp_path


def test_the_last_lines_of_train_are_the_validation_split(folder):
    data = read_review_tasks(folder, dev_size=2)
    assert list(data) == ["books", "dvd"]
    assert data["books"]["train"]["text"][:] == ["good", "bad"]
    assert data["books"]["validation"]["label"][:] == [1, 0]
    assert data.label_names == {task: ["negative", "positive"] for task in ("books", "dvd")}
    assert data["books"]["test"].features["label"] == ClassLabel(names=["negative", "positive"])


def test_each_line_has_its_own_encoding(folder):
    assert read_review_tasks(folder, dev_size=2)["books"]["validation"]["text"][:] == ["café !", "café ?"]


def test_empty_texts_are_kept_and_counted(folder):
    data = read_review_tasks(folder, dev_size=2)
    assert data["dvd"]["validation"]["text"][:] == ["", "d"]
    row = next(line for line in data.summary().splitlines() if line.startswith("dvd"))
    assert row.split()[1:] == ["2", "2", "3", "1", "1", "1", "negative,", "positive"]


def test_test_texts_that_stand_in_train_or_validation_are_marked_and_removable(folder):
    data = read_review_tasks(folder, dev_size=2)
    assert data["books"]["test"]["duplicated"][:] == [True, False]
    assert data["dvd"]["test"]["duplicated"][:] == [False, False, True]
    clean = drop_duplicates(data)
    assert clean["books"]["test"]["text"][:] == ["new"] and clean["dvd"]["test"]["text"][:] == ["x", "x"]
    assert data["books"]["test"].num_rows == 2


def test_tasks_come_in_the_order_asked_for(folder):
    assert list(read_review_tasks(folder, ["dvd", "books"], dev_size=1)) == ["dvd", "books"]
    assert list(read_review_tasks(folder, dev_size=1).only(["dvd"])) == ["dvd"]


def test_what_is_wrong_is_named(folder):
    with pytest.raises(ValueError, match="no task 'bokks'; the tasks are books, dvd; did you mean 'books'"):
        read_review_tasks(folder, ["bokks"])
    with pytest.raises(ValueError, match="books.task.train has 4 lines, too few for dev_size=200"):
        read_review_tasks(folder)
    with pytest.raises(ValueError, match="no split 'dev'"):
        read_review_tasks(folder, dev_size=1).split("dev")
    with pytest.raises(FileNotFoundError, match="no <task>.task.train files"):
        read_review_tasks(folder / "nowhere")
    write_task(folder, "toys", [b"1\tgood", b"2\tbad", b"0\tx"], [b"0\tx"])
    with pytest.raises(
        ValueError, match=r"toys.task.train, line 2: expected 0 or 1, a tab and a text, found '2\\tbad'"
    ):
        read_review_tasks(folder, ["toys"], dev_size=1)


@given(st.lists(st.tuples(st.sampled_from("01"), st.text(st.characters(codec="utf-8"), max_size=20)), min_size=2))
def test_any_text_without_line_ends_comes_back(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("any")
    rows = [(label, "".join(text.split("\n"))) for label, text in rows]
    lines = [f"{label}\t{text}".encode() for label, text in rows]
    write_task(folder, "any", lines, [b"0\tx"])
    data = read_review_tasks(folder, dev_size=1)["any"]
    texts = data["train"]["text"][:] + data["validation"]["text"][:]
    assert texts == [text.rstrip("\r\n").strip() for _, text in rows]


@pytest.mark.skipif(not REAL.is_dir(), reason="the real review files are not beside the project")
def test_the_sixteen_real_tasks_are_read_whole():
    data = read_review_tasks(REAL)
    assert len(data) == 16
    sizes = {split: sum(map(len, data.split(split).values())) for split in ("train", "validation", "test")}
    assert sizes == {"train": 25380 - 16 * 200, "validation": 3200, "test": 6400}
    for task, distinct in (("magazines", 163), ("video", 66), ("camera_photo", 64), ("software", 61)):
        test = data[task]["test"].filter(lambda marked: marked, input_columns="duplicated")
        assert len(set(test["text"])) == distinct
    texts = [text for text in data["sports_outdoors"]["train"]["text"]]
    texts += [text for text in data["sports_outdoors"]["validation"]["text"]]
    assert texts.count("") == 1


ROWS = [{"text": f"text {i}", "label": "ab"[i % 2], "task": "qp"[i % 3 > 0]} for i in range(60)]


def flat(data):
    return {
        task: {split: list(zip(rows["text"], rows["label"], strict=True)) for split, rows in splits.items()}
        for task, splits in data.items()
    }


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv"])
def test_files_of_all_formats_give_the_same_data(tmp_path, suffix):
    path = tmp_path / f"rows.{suffix}"
    if suffix == "jsonl":
        path.write_text("\n".join(map(json.dumps, ROWS)))
    else:
        separator = {"csv": ",", "tsv": "\t"}[suffix]
        lines = [separator.join(row.values()) for row in [dict(zip(ROWS[0], ROWS[0], strict=True)), *ROWS]]
        path.write_text("\n".join(lines))
    data = load_multitask_dataset(path, task_column="task")
    expected = load_multitask_dataset(Dataset.from_list(ROWS), task_column="task")
    assert flat(data) == flat(expected)
    assert list(data) == ["p", "q"] and data.label_names["p"] == ["a", "b"]


def test_missing_splits_are_drawn_from_train_by_label_and_seed():
    rows = Dataset.from_list(ROWS)
    data = load_multitask_dataset(rows, task_column="task", seed=3)
    assert flat(data) == flat(load_multitask_dataset(rows, task_column="task", seed=3))
    assert flat(data) != flat(load_multitask_dataset(rows, task_column="task", seed=4))
    for task in "pq":
        parts = [data[task][split] for split in ("train", "validation", "test")]
        texts = [text for part in parts for text in part["text"]]
        assert sorted(texts) == sorted(row["text"] for row in ROWS if row["task"] == task)
        assert abs(sum(parts[2]["label"]) / len(parts[2]) - 0.5) < 0.13


def test_given_splits_are_kept_whatever_they_are_called(tmp_path):
    for name, rows in (("train", ROWS[:40]), ("dev", ROWS[40:50]), ("test", ROWS[50:])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = load_multitask_dataset(tmp_path)
    assert list(data) == ["default"]
    assert {split: len(rows) for split, rows in data["default"].items()} == {"train": 40, "validation": 10, "test": 10}


def test_class_labels_keep_their_order_and_dictionaries_theirs():
    features = Features({"text": Value("string"), "label": ClassLabel(names=["yes", "no"])})
    rows = Dataset.from_dict({"text": ["a", "b"] * 10, "label": [0, 1] * 10}, features=features)
    data = load_multitask_dataset({"z": rows, "a": DatasetDict(train=rows, test=rows)})
    assert list(data) == ["z", "a"] and data.label_names["z"] == ["yes", "no"]
    assert all(data["a"]["test"]["duplicated"])


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        (ROWS, {"text_column": "review"}, "text_column is 'review', but the train split has the columns text, label"),
        (ROWS, {"task_column": "domain"}, "task_column is 'domain'"),
        (ROWS, {"task_column": "task", "tasks": ["r"]}, "no task 'r'; the tasks are p, q"),
        (ROWS, {"dev_fraction": 0.0}, "dev_fraction is 0.0"),
        ([{**row, "text": None} for row in ROWS], {}, "train split, row 0: column 'text' holds None"),
        ([{**row, "label": 0.5} for row in ROWS], {}, "row 0: column 'label' holds 0.5"),
        ([{**row, "label": "a"} for row in ROWS], {}, "task 'default' has one label only"),
        (ROWS[:2], {}, "cannot draw"),
    ],
)
def test_bad_data_are_refused_by_name(rows, settings, message):
    with pytest.raises(ValueError, match=message):
        load_multitask_dataset(Dataset.from_list(rows), **settings)


def test_a_label_that_train_does_not_have_is_named():
    data = DatasetDict(train=Dataset.from_list(ROWS), test=Dataset.from_list([{**ROWS[0], "label": "c"}]))
    with pytest.raises(ValueError, match=r"task 'default', test split, example 0: label 'c' does not occur in train"):
        load_multitask_dataset(data)
    with pytest.raises(ValueError, match="none is called train"):
        load_multitask_dataset(DatasetDict(test=Dataset.from_list(ROWS)))
    with pytest.raises(TypeError, match="cannot read int"):
        load_multitask_dataset(3)
    with pytest.raises(FileNotFoundError, match="no file"):
        load_multitask_dataset("absent.csv")
