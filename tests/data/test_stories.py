"""The reader of own stories."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_metalstm.data.stories import Question, Story, cut_validation, make_story_dataset, read_stories

KEY = {"facts": ["Ada took the key.", " Ada ran to the cellar. "], "question": "Where is the key?", "answer": "cellar"}


def write(path, rows):
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def read_test(tmp_path, rows, **settings):
    return list(read_stories({"test": write(tmp_path / "own.jsonl", rows)}, **settings)["test"])


def test_facts_or_a_paragraph_become_rows(tmp_path):
    rows = read_test(
        tmp_path,
        [
            {**KEY, "supporting_facts": [1, 0, 1]},
            "",
            {
                "context": "It rained. Dr. Otto slept!\n",
                "question": "Who slept?",
                "answer": "Dr. Otto",
                "task": "sleep",
            },
            {"facts": ["a"], "question": "b?", "answer": ["New York", "x"], "supporting_facts": None},
        ],
    )
    path = tmp_path / "own.jsonl"
    assert rows == [
        {
            "facts": ["Ada took the key.", "Ada ran to the cellar."],
            "question": "Where is the key?",
            "answer": ["cellar"],
            "supporting_facts": [1, 0],
            "task": "own",
            "source": f"{path}, line 1",
        },
        {
            "facts": ["It rained.", "Dr. Otto slept!"],
            "question": "Who slept?",
            "answer": ["Dr.", "Otto"],
            "supporting_facts": None,
            "task": "sleep",
            "source": f"{path}, line 3",
        },
        {
            "facts": ["a"],
            "question": "b?",
            "answer": ["New York", "x"],
            "supporting_facts": None,
            "task": "own",
            "source": f"{path}, line 4",
        },
    ]


def test_answers_are_one_class_on_request(tmp_path):
    rows = [{**KEY, "answer": "the cellar"}, {**KEY, "answer": ["a", "b"]}]
    assert [row["answer"] for row in read_test(tmp_path, rows, list_answers="class")] == [["the cellar"], ["a b"]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"facts": []}, "the story has no facts"),
        ({"facts": None}, "give either facts .* or context"),
        ({"context": "a. b."}, "give either facts .* or context"),
        ({"facts": None, "context": " "}, "the context is empty"),
        ({"facts": None, "context": "..."}, "the story has no facts"),
        ({"facts": "a. b."}, "facts is 'a. b.', expected a list of sentences; a paragraph is a context"),
        ({"facts": ["a", " "]}, "fact 1 is ' ', expected a sentence"),
        ({"facts": ["a", 3]}, "fact 1 is 3, expected a sentence"),
        ({"question": "  "}, "the question is empty"),
        ({"question": None}, "there is no 'question'"),
        ({"question": 5}, r"question is 5 \(int\), expected a text"),
        ({"answer": None}, "answer is None, expected a text or a list of words"),
        ({"answer": ""}, "the answer is empty"),
        ({"answer": []}, "the answer is empty"),
        ({"answer": ["a", ""]}, "expected a text or a list of words"),
        ({"answer": 3}, "answer is 3"),
        ({"supporting_facts": [2]}, r"supporting fact 2 is beyond the story, whose facts are 0\.\.1"),
        ({"supporting_facts": [-1]}, "supporting fact -1 is beyond the story"),
        ({"supporting_facts": "0"}, "supporting_facts is '0', expected a list of indexes"),
        ({"supporting_facts": [True]}, "expected a list of indexes"),
        ({"task": ""}, "the task is empty"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(change, message, tmp_path):
    path = write(tmp_path / "own.jsonl", [KEY, "", {**KEY, **change}])
    with pytest.raises(ValueError, match=message) as caught:
        read_stories({"test": path})
    assert str(caught.value).startswith(f"{path}, line 3: ")


def test_lines_that_are_no_stories_are_named(tmp_path):
    with pytest.raises(ValueError, match="own.jsonl, line 2: not JSON"):
        read_test(tmp_path, [KEY, "{"])
    with pytest.raises(ValueError, match="unknown name 'supporting_fact'; .*did you mean 'supporting_facts'"):
        read_test(tmp_path, [{**KEY, "supporting_fact": [0]}])
    with pytest.raises(ValueError, match="stories are read from .jsonl or .json"):
        read_stories(write(tmp_path / "own.csv", ["question,answer", "a,b"]))


def test_splits_are_files_or_drawn_from_train(tmp_path):
    rows = [{**KEY, "facts": [f"Fact {number // 2}."], "question": f"{number}?"} for number in range(40)]
    path = write(tmp_path / "train.jsonl", rows)
    data = read_stories(path)
    assert {split: part.num_rows for split, part in data.items()} == {"train": 36, "validation": 4}
    assert not {facts[0] for facts in data["train"]["facts"]} & {facts[0] for facts in data["validation"]["facts"]}
    assert data["validation"].to_list() == read_stories(path)["validation"].to_list()
    assert data["validation"].to_list() != read_stories(path, seed=1)["validation"].to_list()
    other = write(tmp_path / "other.jsonl", [KEY])
    data = read_stories({"test": other, "train": path, "validation": other})
    assert [(split, part.num_rows) for split, part in data.items()] == [("train", 40), ("validation", 1), ("test", 1)]
    with pytest.raises(ValueError, match="there is no split 'dev'"):
        read_stories({"dev": other})
    with pytest.raises(ValueError, match="no file is given"):
        read_stories({})
    with pytest.raises(ValueError, match="task 'other' has one story: too few"):
        read_stories(other)


def test_a_json_list_is_read_too(tmp_path):
    path = tmp_path / "own.json"
    path.write_text(json.dumps([KEY, KEY]))
    assert read_stories({"test": path})["test"].num_rows == 2


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 6)), min_size=4, max_size=40),
    st.floats(0.05, 0.95),
    st.integers(0, 99),
)
def test_the_parts_are_disjoint_complete_in_order_and_near_the_fraction(sizes, fraction, seed):
    stories = [
        Story(task, [str(number)], [Question("?", ("a",), (0,), 1, "")] * questions)
        for number, (task, questions) in enumerate(sizes)
    ]
    for task in "ab":
        count = sum(story.task == task and bool(story.questions) for story in stories)
        if count == 1:
            with pytest.raises(ValueError, match="one story"):
                cut_validation(stories, fraction, seed)
            return
    rest, drawn = cut_validation(stories, fraction, seed)
    numbers = [[int(story.facts[0]) for story in part] for part in (rest, drawn)]
    assert all(part == sorted(part) for part in numbers)
    assert sorted(numbers[0] + numbers[1]) == list(range(len(stories)))
    for task in {task for task, questions in sizes if questions}:
        kept, cut = (sum(len(story.questions) for story in part if story.task == task) for part in (rest, drawn))
        largest = max(questions for own, questions in sizes if own == task)
        assert kept and cut
        assert abs(cut - fraction * (kept + cut)) <= largest


def test_rows_hold_the_facts_before_the_question():
    story = Story("t", ["a", "b", "c"], [Question("x?", ("1",), (0,), 1, "s"), Question("y?", ("2",), None, 2, "s")])
    rows = make_story_dataset([story], "made up")
    assert rows["facts"][:] == [["a"], ["a", "b"]] and rows["supporting_facts"][:] == [[0], None]
    assert rows.info.description == "made up"
