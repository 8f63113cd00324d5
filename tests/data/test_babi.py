"""The bAbI reader: small files of our own, and the published files where they are at hand."""

import os
import re
from collections import Counter
from pathlib import Path

import pytest
from datasets import Features, Value
from datasets import Sequence as ListOf
from hypothesis import given
from hypothesis import strategies as st

from hf_metalstm.data.babi import format_babi, read_babi, read_babi_file
from hf_metalstm.data.stories import Question, Story

REAL = Path(os.environ.get("HF_METALSTM_BABI", Path(__file__).resolve().parents[3] / "shared" / "data" / "babi"))
TRAIN = """\
1 Ada took the key.
2 Where is Ada? \tmeadow\t1
3 Ada ran to the cellar.
4 Otto slept.

5 Where is the key?\tcellar\t3 1
6 What is Ada carrying?\tkey,lamp\t1 3
1 Otto is north of Ada.
2 How do you get there?\ts,w\t1
"""


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


def read_text(tmp_path: Path, text: str, **settings) -> list[Story]:
    return read_babi_file(write(tmp_path / "qa1_own_train.txt", text), **settings)


def test_supporting_facts_are_counted_anew_without_the_questions(tmp_path):
    first, second = read_text(tmp_path, TRAIN)
    assert first.facts == ["Ada took the key.", "Ada ran to the cellar.", "Otto slept."]
    assert [(q.text, q.answer, q.supporting_facts, q.position) for q in first.questions] == [
        ("Where is Ada?", ("meadow",), (0,), 1),
        ("Where is the key?", ("cellar",), (1, 0), 3),
        ("What is Ada carrying?", ("key", "lamp"), (0, 1), 3),
    ]
    assert second.facts == ["Otto is north of Ada."]
    assert second.questions[0].answer == ("s", "w")
    assert first.questions[1].source.endswith("qa1_own_train.txt, line 6")


def test_list_answers_are_one_class_on_request(tmp_path):
    first, second = read_text(tmp_path, TRAIN, list_answers="class")
    assert first.questions[2].answer == ("key,lamp",) and second.questions[0].answer == ("s,w",)
    with pytest.raises(ValueError, match="list_answers is 'both'; allowed: 'tokens', 'class'"):
        read_text(tmp_path, TRAIN, list_answers="both")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\n\n  \n"),
        lambda text: "\ufeff" + text.rstrip("\n"),
        lambda text: text.replace("slept.", "slept. \t"),
        lambda text: re.sub(r"^(\d+) ", r"\1\t", text, flags=re.MULTILINE),
        lambda text: text.replace("\t1\n", " \t 1 \n"),
    ],
)
def test_blank_lines_line_ends_and_stray_blanks_do_not_matter(change, tmp_path):
    def content(stories):
        return [(s.facts, [(q.text, q.answer, q.supporting_facts, q.position) for q in s.questions]) for s in stories]

    assert content(read_text(tmp_path, change(TRAIN))) == content(read_text(tmp_path, TRAIN))


def test_ids_may_have_gaps_and_supporting_ids_may_be_absent(tmp_path):
    (story,) = read_text(tmp_path, "1 A b.\n4 C d.\n6 E?\tb\t4 4 1\n8 F?\tb\n")
    assert [question.supporting_facts for question in story.questions] == [(1, 0), None]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("1 A.\n2 B?\tc\t3\n3 D.", 2, "supporting id 3 is beyond the lines of the story that come before the question"),
        ("1 A.\n2 B?\tc\t2", 2, "supporting id 2 is beyond"),
        ("1 A.\n2 B?\tc\t9", 2, "supporting id 9 is beyond"),
        ("1 A.\n2 B?\tc\t1\n3 D?\te\t2", 3, "supporting id 2 is a question, expected the id of a fact"),
        ("1 A.\n3 B.\n4 C?\td\t2", 3, "supporting id 2 is no line of the story"),
        ("1 A.\n2 B.\n1 A.\n3 B?\tc\t2", 4, "supporting id 2 is no line of the story"),
        ("1 A.\n2 B?\tc\t0", 2, "supporting id 0 is no line of the story"),
        ("1 A.\n2 B?\tc\tx", 2, "supporting id 'x' is no number"),
        ("1 A.\n2 B?\tc\t-1", 2, "supporting id '-1' is no number"),
        ("1 A.\n2 Where is A? c 1", 2, "'Where is A\\? c 1' looks like a question, but no tab"),
        ("1 A.\n2 B?\t", 2, "the question 'B\\?' has no answer"),
        ("1 A.\n2 B?\t\t1", 2, "the answer '' is empty"),
        ("1 A.\n2 B?\tc,,d\t1", 2, "the answer 'c,,d' is empty or has an empty part"),
        ("1 A.\n2 \tc\t1", 2, "the question is empty"),
        ("1 A.\n2\t\tc\t1", 2, "the question is empty"),
        ("1 A.\n2 B?\tc\t1\t1", 2, "3 tabs, expected question, answer and supporting ids"),
        ("1 B?\tc\t", 1, "story 0 has no facts before its question"),
        ("1 A.\n2 B?\tc\t1\n1 B?\tc", 3, "story 1 has no facts before its question"),
        ("1 A.\n3 B.\n2 C.", 3, "id 2 follows id 3; ids go up"),
        ("1 A.\n2 B.\n2 C.", 3, "id 2 follows id 2; ids go up"),
        ("2 A.\n3 B?\tc\t2", 1, "the first story begins with id 2, expected 1"),
        ("1 A.\nB.", 2, "expected a number and a text, found 'B.'"),
        ("1 A.\n2", 2, "the fact is empty"),
        ("1 A.\n2 \xe9", 2, "not UTF-8"),
    ],
)
def test_what_breaks_the_format_is_named_with_file_and_line(text, line, message, tmp_path):
    path = write(tmp_path / "qa1_own_train.txt", text, "latin-1")
    with pytest.raises(ValueError, match=message) as caught:
        read_babi_file(path)
    assert str(caught.value).startswith(f"{path}, line {line}: ")


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is empty"):
        read_text(tmp_path, "\n \n")


WORDS = st.text(st.sampled_from("abcXYZ .,'é"), min_size=1, max_size=12).map(str.strip).filter(bool)
ANSWERS = st.lists(st.text(st.sampled_from("abcé'"), min_size=1, max_size=5), min_size=1, max_size=3)


@st.composite
def any_story(draw) -> Story:
    facts = draw(st.lists(WORDS, min_size=1, max_size=6))
    positions = sorted(draw(st.lists(st.integers(1, len(facts)), max_size=4)))
    questions = [
        Question(
            draw(WORDS) + "?",
            tuple(draw(ANSWERS)),
            tuple(draw(st.lists(st.integers(0, position - 1), unique=True, min_size=1))),
            position,
            "",
        )
        for position in positions
    ]
    return Story("qa1_own", facts, questions)


@given(st.lists(any_story(), min_size=1, max_size=4))
def test_what_is_written_is_read_back(tmp_path_factory, stories):
    text = format_babi(stories)
    read = read_text(tmp_path_factory.mktemp("stories"), text)
    assert len(read) == len(stories)
    for one, other in zip(read, stories, strict=True):
        assert one.facts == other.facts
        for question, expected in zip(one.questions, other.questions, strict=True):
            for name in ("text", "answer", "supporting_facts", "position"):
                assert getattr(question, name) == getattr(expected, name)


@pytest.mark.parametrize(
    ("story", "message"),
    [
        (Story("t", ["a\tb"]), "'a\\\\tb' holds '\\\\t'"),
        (Story("t", ["a?"]), "'a\\?' holds '\\?'"),
        (Story("t", ["a"], [Question("b", ("c,d",), (0,), 1, "")]), "'c,d' holds ','"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(story, message):
    with pytest.raises(ValueError, match=message):
        format_babi([story])


def numbered(size: int, name: str = "w") -> str:
    """Stories with two questions each, all different."""
    return "".join(f"1 Fact {name}{n}.\n2 A?\tx\t1\n3 B?\ty\t1\n" for n in range(size // 2))


@pytest.fixture
def folder(tmp_path) -> Path:
    for version, size in (("en", 40), ("en-10k", 1002)):
        for task in ("qa1_one", "qa2_two", "qa10_ten"):
            write(tmp_path / version / f"{task}_train.txt", numbered(size))
            write(tmp_path / version / f"{task}_test.txt", numbered(6, "t"))
    return tmp_path


def test_the_size_is_chosen_explicitly(folder):
    assert read_babi(folder, "en")["train"].num_rows == 3 * 36
    assert read_babi(folder, "en-10k", tasks=[1])["train"].num_rows == 902
    assert read_babi(folder / "en", "en")["train"].num_rows == 3 * 36
    assert read_babi(folder / "en", None)["train"].num_rows == 3 * 36
    with pytest.raises(ValueError, match="has 40 questions, which is not the size of 'en-10k': choose 'en'"):
        read_babi(folder / "en", "en-10k")
    with pytest.raises(ValueError, match="has 1002 questions, which is not the size of 'en'"):
        read_babi(folder / "en-10k", "en")
    with pytest.raises(ValueError, match="version is '10k'; allowed: 'en', 'en-10k', or None"):
        read_babi(folder, "10k")
    with pytest.raises(FileNotFoundError, match="it has the folders en, en-10k: choose one by version="):
        read_babi(folder, None)


def test_one_task_several_or_all_are_read(folder):
    assert Counter(read_babi(folder, "en", tasks=[2])["test"]["task"]) == {"qa2_two": 6}
    assert list(dict.fromkeys(read_babi(folder, "en", tasks=[10, 1])["test"]["task"])) == ["qa10_ten", "qa1_one"]
    assert list(dict.fromkeys(read_babi(folder, "en")["test"]["task"])) == ["qa1_one", "qa2_two", "qa10_ten"]


@pytest.mark.parametrize(
    ("tasks", "error", "message"),
    [
        ([3], FileNotFoundError, "there is no task 3 in .*; there are 1, 2, 10"),
        (1, TypeError, "expected a list of task numbers"),
        (["1"], TypeError, "expected a list of task numbers"),
        ([], ValueError, "one task or more"),
        ([1, 1], ValueError, "each of them once"),
    ],
)
def test_wrong_tasks_are_named(folder, tasks, error, message):
    with pytest.raises(error, match=message):
        read_babi(folder, "en", tasks=tasks)


def test_columns_are_typed(folder):
    for rows in read_babi(folder, "en").values():
        assert rows.features == Features(
            {
                "facts": ListOf(Value("string")),
                "question": Value("string"),
                "answer": ListOf(Value("string")),
                "supporting_facts": ListOf(Value("int64")),
                "task": Value("string"),
                "source": Value("string"),
            }
        )


def test_validation_is_cut_from_train_by_whole_stories_in_the_same_way_each_time(folder):
    data = read_babi(folder, "en", tasks=[1, 2], validation_fraction=0.2)
    assert {split: rows.num_rows for split, rows in data.items()} == {"train": 64, "validation": 16, "test": 12}
    one = {split: rows.filter(lambda row: row["task"] == "qa1_one") for split, rows in data.items()}
    drawn = [facts[0] for facts in one["validation"]["facts"]]
    assert not set(drawn) & {facts[0] for facts in one["train"]["facts"]}
    assert sorted(Counter(drawn).values()) == [2, 2, 2, 2]
    # The draw depends on the task and the seed, not on what else is read.
    alone = read_babi(folder, "en", tasks=[1], validation_fraction=0.2)
    assert alone["validation"].to_list() == one["validation"].to_list()
    other = read_babi(folder, "en", tasks=[1], validation_fraction=0.2, seed=1)
    assert other["validation"].to_list() != alone["validation"].to_list()
    assert other["test"].to_list() == alone["test"].to_list()
    for fraction in (0, 1, -0.1):
        with pytest.raises(ValueError, match="validation_fraction is .*, but must lie between 0 and 1"):
            read_babi(folder, "en", validation_fraction=fraction)


def test_a_validation_file_is_taken_where_there_is_one(folder):
    write(folder / "en" / "qa1_one_valid.txt", numbered(10, "v"))
    data = read_babi(folder, "en", tasks=[1])
    assert (data["train"].num_rows, data["validation"].num_rows) == (40, 10)


def test_missing_folders_and_files_are_named(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        read_babi(tmp_path / "nowhere", "en")
    (folder / "en" / "qa2_two_test.txt").unlink()
    with pytest.raises(FileNotFoundError, match="task 2 has no test file"):
        read_babi(folder, "en")
    write(folder / "en" / "qa1_uno_train.txt", TRAIN)
    with pytest.raises(ValueError, match="two train files of task 1"):
        read_babi(folder, "en")


# ----------------------------------------------------------------------------------------------------------------------
# The published files. Here they are read a second time, line by line, in the plainest way.

needs_real = pytest.mark.skipif(not REAL.is_dir(), reason="the bAbI files are not beside the project")


def plain_rows(path: Path):
    for line in path.read_text().splitlines():
        number, _, text = line.partition(" ")
        if number == "1":
            lines = {}
        question, *rest = text.split("\t")
        lines[number] = None if rest else text.strip()
        if rest:
            facts = [fact for fact in lines.values() if fact is not None]
            yield facts, question.strip(), rest[0].split(","), [lines[number] for number in rest[1].split()]


@needs_real
def test_every_row_of_the_published_files_is_read_as_it_stands():
    data = read_babi(REAL, "en")
    joint = {"train": [*data["train"], *data["validation"]], "test": list(data["test"])}
    for split, rows in joint.items():
        by_task = {}
        for row in rows:
            by_task.setdefault(int(row["task"][2:].split("_")[0]), []).append(row)
        assert {task: len(own) for task, own in by_task.items()} == dict.fromkeys(range(1, 21), 1000)
        for task, own in by_task.items():
            own.sort(key=lambda row: int(row["source"].rsplit(" ", 1)[1]))
            (path,) = REAL.glob(f"qa{task}_*_{split}.txt")
            for row, (facts, question, answer, supporting) in zip(own, plain_rows(path), strict=True):
                assert (row["facts"], row["question"], row["answer"]) == (facts, question, answer)
                assert [row["facts"][index] for index in row["supporting_facts"]] == supporting
                assert None not in supporting and supporting
    assert 95 <= min(Counter(data["validation"]["task"]).values())
    assert max(Counter(data["validation"]["task"]).values()) <= 105


@needs_real
def test_lists_of_the_published_files_are_tokens_or_classes():
    for task, longest in ((8, 3), (19, 2)):
        tokens = read_babi(REAL, "en", tasks=[task])["train"]["answer"]
        classes = read_babi(REAL, "en", tasks=[task], list_answers="class")["train"]["answer"]
        assert max(map(len, tokens)) == longest and {len(answer) for answer in classes} == {1}
        assert [",".join(answer) for answer in tokens] == [answer for (answer,) in classes]


@needs_real
def test_the_published_small_files_are_not_taken_for_the_large_ones():
    with pytest.raises(ValueError, match="has 1000 questions, which is not the size of 'en-10k'"):
        read_babi(REAL, "en-10k", tasks=[1])
