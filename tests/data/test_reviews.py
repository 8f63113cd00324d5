"""Readers: the sixteen-task files, and any data set with text, label and task columns."""

import csv
import json
from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from hypothesis import given
from hypothesis import strategies as st

from hf_metalstm.data import reviews
from hf_metalstm.data.reviews import drop_duplicates, load_multitask_dataset, read_review_tasks
from hf_metalstm.data.text_files import read_rows

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
    assert data["books"]["train"]["duplicated"][:] == [True, False]
    clean = drop_duplicates(data)
    assert clean["books"]["test"]["text"][:] == ["new"] and clean["dvd"]["test"]["text"][:] == ["x", "x"]
    assert data["books"]["test"].num_rows == 2
    clean = drop_duplicates(data, where="train")
    assert clean["books"]["train"]["text"][:] == ["bad"] and clean["books"]["train"]["label"][:] == [0]
    assert clean["dvd"]["validation"]["text"][:] == [""] and clean["dvd"]["test"]["text"][:] == ["x", "x", "d"]
    assert not any(any(rows["duplicated"]) for splits in clean.values() for rows in splits.values())
    assert clean.source == data.source and clean["books"]["test"].info.description == data.source
    with pytest.raises(ValueError, match="where is 'dev', but must be 'test' or 'train'"):
        drop_duplicates(data, where="dev")


def test_empty_texts_are_left_out_when_asked_for(folder):
    data = read_review_tasks(folder, dev_size=2, drop_empty=True)
    assert data["dvd"]["validation"]["text"][:] == ["d"] and data["dvd"]["validation"]["label"][:] == [0]
    assert data["dvd"]["train"]["text"][:] == ["a", "b"]


def test_all_splits_have_the_same_features_so_that_they_can_be_shared(folder):
    for splits in read_review_tasks(folder, dev_size=2).values():
        assert splits["train"].features == splits["validation"].features == splits["test"].features
        assert list(splits["test"].features) == ["text", "label", "duplicated"]


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
    with pytest.raises(TypeError, match=r"tasks is 'books', expected a list of names, such as \['books'\]"):
        read_review_tasks(folder, "books", dev_size=1)
    with pytest.raises(ValueError, match="expected one task or more, each of them once"):
        read_review_tasks(folder, ["books", "books"], dev_size=1)
    (folder / "dvd.task.test").unlink()
    with pytest.raises(FileNotFoundError, match="task 'dvd' has a train file, but there is no .*dvd.task.test"):
        read_review_tasks(folder, dev_size=1)
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
        # Counted once more, from the bytes of the files.
        raw = {split: (REAL / f"{task}.task.{split}").read_bytes().splitlines() for split in ("train", "test")}
        train = {line.split(b"\t", 1)[1] for line in raw["train"]}
        assert sum(line.split(b"\t", 1)[1] in train for line in raw["test"]) == test.num_rows
    texts = [text for text in data["sports_outdoors"]["train"]["text"]]
    texts += [text for text in data["sports_outdoors"]["validation"]["text"]]
    assert texts.count("") == 1


ROWS = [{"text": f"text {i}", "label": "ab"[i % 2], "task": "qp"[i % 3 > 0]} for i in range(60)]


def flat(data):
    return {
        task: {split: list(zip(rows["text"], rows["label"], strict=True)) for split, rows in splits.items()}
        for task, splits in data.items()
    }


@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "TSV"])
def test_files_of_all_formats_give_the_same_data(tmp_path, suffix):
    path = tmp_path / f"rows.{suffix}"
    if suffix == "jsonl":
        path.write_text("\n".join(map(json.dumps, ROWS)))
    elif suffix == "json":
        path.write_text(json.dumps(ROWS, indent=1))
    else:
        separator = {"csv": ",", "TSV": "\t"}[suffix]
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
        (ROWS[:2], {}, "task 'default': 2 rows are too few to draw a validation split from"),
        (ROWS, {"dev_fraction": 0.5, "test_fraction": 0.5}, "leave nothing for train"),
        ([{**row, "label": None} for row in ROWS], {}, "train split, row 0: column 'label' holds None"),
        ([{**row, "label": " "} for row in ROWS], {}, "row 0: column 'label' holds ' '"),
        ([*ROWS, {**ROWS[0], "task": None}], {"task_column": "task"}, "row 60: column 'task' holds None"),
        (ROWS, {"task_column": "task", "tasks": []}, "expected one task or more"),
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
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        load_multitask_dataset("some/folder/reviews")
    with pytest.raises(TypeError, match="a stream has no length: take a part"):
        load_multitask_dataset(Dataset.from_list(ROWS).to_iterable_dataset())
    with pytest.raises(ValueError, match="Dataset has no rows"):
        load_multitask_dataset(Dataset.from_list(ROWS).select([]))


def test_a_test_split_without_labels_is_drawn_from_train():
    features = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    train = Dataset.from_dict({"text": list("abcdefghij") * 3, "label": [0, 1] * 15}, features=features)
    hidden = Dataset.from_dict({"text": ["x", "y"], "label": [-1, -1]}, features=features)
    with pytest.warns(UserWarning, match="the test split has no labels: one is drawn from train"):
        data = load_multitask_dataset(DatasetDict(train=train, test=hidden))
    assert len(data["default"]["test"]) == 6 and "x" not in data["default"]["test"]["text"]
    partly = Dataset.from_dict({"text": ["x", "y"], "label": [1, -1]}, features=features)
    with pytest.raises(ValueError, match="test split, row 1: column 'label' holds -1"):
        load_multitask_dataset(DatasetDict(train=train, test=partly))


def test_numbers_as_labels_are_in_the_order_of_their_size():
    rows = Dataset.from_dict({"text": [f"t{i}" for i in range(60)], "label": [i % 12 for i in range(60)]})
    data = load_multitask_dataset(rows)
    assert data.label_names["default"] == [str(i) for i in range(12)]
    for part in data["default"].values():
        assert all(label == int(text[1:]) % 12 for text, label in zip(part["text"], part["label"], strict=True))
    assert "0, 1, 2, 3, ... (12)" in data.summary()


def test_a_class_label_column_can_name_the_tasks():
    rows = Dataset.from_list(ROWS).cast_column("task", ClassLabel(names=["q", "p"]))
    expected = load_multitask_dataset(Dataset.from_list(ROWS), task_column="task")
    assert flat(load_multitask_dataset(rows, task_column="task")) == flat(expected)


@given(
    st.lists(st.sampled_from("abc"), min_size=8, max_size=60),
    st.floats(0.05, 0.4),
    st.floats(0.05, 0.4),
    st.integers(0, 9),
)
def test_drawn_splits_hold_every_row_once_and_each_label_in_proportion(labels, dev, test, seed):
    labels = [*labels, "a", "a", "b", "b"]
    rows = Dataset.from_dict({"text": [str(i) for i in range(len(labels))], "label": labels})
    data = load_multitask_dataset(rows, dev_fraction=dev, test_fraction=test, seed=seed)["default"]
    names = data["train"].features["label"].names
    found = {split: [names[label] for label in part["label"]] for split, part in data.items()}
    assert sorted(int(text) for part in data.values() for text in part["text"]) == list(range(len(labels)))
    for part in data.values():
        assert [labels[int(text)] for text in part["text"]] == [names[label] for label in part["label"]]
        assert [int(text) for text in part["text"]] == sorted(int(text) for text in part["text"])
    for label in set(labels):
        count = labels.count(label)
        assert found["train"].count(label) >= 1
        if count > 8:
            assert abs(found["test"].count(label) - test * count) <= 1
            assert abs(found["validation"].count(label) - dev * count) <= 1


def test_files_are_read_as_they_stand(tmp_path):
    rows = [("NA", "01", "null"), ("null", "02", "null"), ('he said "no",\nthen left', "01", "7"), ("3.5", "02", "7")]
    with open(tmp_path / "rows.csv", "w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([("text", "label", "task"), *rows * 5])
    data = load_multitask_dataset(tmp_path / "rows.csv", task_column="task")
    assert list(data) == ["7", "null"] and data.label_names["7"] == ["01", "02"]
    texts = {text for splits in data.values() for part in splits.values() for text in part["text"]}
    assert texts == {text for text, _, _ in rows}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"text,label\na,b\nq\n", r"a.csv, line 3: 1 fields, but 2 columns \(text, label\)"),
        ("a.csv", b'text,label\n"x\ny",b\n"great" he said,b\n', "a.csv, line 4: .*quotation mark must end with one"),
        ("a.csv", b'text,label\na,b\n"great,b\nc,d\n', "a.csv, line 3: "),
        ("a.csv", b"text,label\na,b\ncaf\xe9,b\n", "a.csv, line 3: not UTF-8"),
        ("a.csv", b"text,text\na,b\n", "two columns have the same name"),
        ("a.csv", b"text,label\na,b\nc,\n", "a.csv, line 3: column 'label' holds ''"),
        ("a.tsv", b"text,label\na,b\n", "text_column is 'text', but the train split has the columns text,label"),
        ("a.csv", b"\n", "a.csv is empty"),
        ("a.csv", b"text,label\n", "a.csv has no rows"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n\n{bad\n', "a.jsonl, line 3: not JSON .*{bad"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n["a", 1]\n', "a.jsonl, line 2: expected an object"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n{"text": "b"}\n', "a.jsonl, line 2: column 'label' holds None"),
        ("a.json", b'[{"text": "a",\n label: 1}]', "a.json, line 2: not JSON"),
        ("a.parquet", b"PAR1", "a.parquet is of no known format; these can be read: .csv, .tsv, .json, .jsonl"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_multitask_dataset(tmp_path / name)


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8"), min_size=1), st.sampled_from("ab")), max_size=8))
def test_any_text_comes_back_from_a_table(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("any") / "rows.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    found = read_rows(path)
    assert list(zip(found.columns["text"], found.columns["label"], strict=True)) == rows


def test_a_name_that_is_no_file_is_looked_up_on_the_hub(monkeypatch):
    asked = []

    def load_dataset(*arguments):
        asked.append(arguments)
        return DatasetDict(train=Dataset.from_list(ROWS))

    monkeypatch.setattr(reviews, "load_dataset", load_dataset)
    data = load_multitask_dataset("owner/reviews", config_name="english")
    assert asked == [("owner/reviews", "english")] and data.source == "owner/reviews"
    assert data["default"]["train"].num_rows == 42


def test_a_folder_has_one_file_a_split(tmp_path):
    with pytest.raises(FileNotFoundError, match="no files such as train.csv"):
        load_multitask_dataset(tmp_path)
    for name in ("dev.jsonl", "train.jsonl", "validation.jsonl"):
        (tmp_path / name).write_text("\n".join(map(json.dumps, ROWS)))
    with pytest.raises(ValueError, match="dev.jsonl are both the validation split"):
        load_multitask_dataset(tmp_path)
