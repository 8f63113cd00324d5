"""The bAbI tasks (Weston et al. 2015): files of numbered lines, in which questions stand between the facts.

A line is `ID fact` or `ID question<TAB>answer<TAB>supporting ids`; the ids of a story start at 1. Supporting ids count
all lines of the story, questions included: here they become indexes into the facts alone, from 0.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from datasets import DatasetDict

from .stories import SPLITS, Question, Story, check_list_answers, cut_validation, make_story_dataset

VERSIONS = ("en", "en-10k")
_SMALL_SIZE = 1000
_FILE = re.compile(r"qa(?P<number>\d+)_(?P<name>.+)_(?P<split>train|valid|test)\.txt")
# One tab may stand behind the id; a tab behind blanks comes after an empty question.
_LINE = re.compile(r"\s*(\d+)(?:\t|[^\S\t]+|$)(.*)", re.DOTALL)


def read_babi(
    folder: str | Path,
    version: str | None,
    tasks: Sequence[int] | None = None,
    list_answers: str = "tokens",
    validation_fraction: float = 0.1,
    seed: int = 0,
) -> DatasetDict:
    """Reads bAbI files: one task, several, or all of them as one joint data set.

    Args:
        folder: where `qa1_..._train.txt` and so on are, or the folders `en` and `en-10k` that hold them.
        version: "en" (1,000 training questions a task) or "en-10k" (10,000); files of the other size are refused. None
            for files of your own, of any size, which lie in the folder itself.
        tasks: numbers of the tasks; None means all that are there.
        list_answers: "tokens" reads an answer such as "milk,football" as two tokens, "class" as one.
        validation_fraction: part of each task's training questions that becomes the validation split; test is never
            touched. Whole stories are drawn. Where a task has a file `..._valid.txt`, that is taken instead.
        seed: of the draw.

    Returns:
        A `DatasetDict` with the splits train, validation and test, one row a question: `facts` (those before the
        question), `question`, `answer` (list of tokens), `supporting_facts` (indexes into `facts`, in the order of the
        file), `task` ("qa1_single-supporting-fact") and `source` (file and line).

    Raises:
        FileNotFoundError: a folder, a task or one of its files is not there.
        ValueError: an unknown version, files of another size, or a line that breaks the format, with file and line.

    Example:
        >>> import tempfile
        >>> from hf_metalstm.data.babi import read_babi
        >>> from hf_metalstm.data.babi_generator import write_babi
        >>> folder = tempfile.mkdtemp()
        >>> _ = write_babi(folder, tasks=[1], train_size=100, test_size=50)
        >>> data = read_babi(folder, version=None)
        >>> {split: rows.num_rows for split, rows in data.items()}
        {'train': 90, 'validation': 10, 'test': 50}
    """
    check_list_answers(list_answers)
    folder = _folder_of(Path(folder), version)
    found = _files_of(folder)
    splits: dict[str, list[Story]] = {split: [] for split in SPLITS}
    for number in _choose(tasks, found, folder):
        files = found[number]
        for split in ("train", "test"):
            if split not in files:
                raise FileNotFoundError(f"task {number} has no {split} file in {folder}")
        stories = {split: read_babi_file(path, list_answers) for split, path in files.items()}
        _check_size(stories["train"], version, files["train"])
        if "valid" not in stories:
            stories["train"], stories["valid"] = cut_validation(stories["train"], validation_fraction, seed)
        for split in SPLITS:
            splits[split] += stories["valid" if split == "validation" else split]
    what = f"bAbI {version or 'files'} in {folder}"
    return DatasetDict({split: make_story_dataset(stories, what) for split, stories in splits.items()})


def _folder_of(folder: Path, version: str | None) -> Path:
    if version is not None and version not in VERSIONS:
        raise ValueError(f"version is {version!r}; allowed: {', '.join(map(repr, VERSIONS))}, or None for own files")
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    return folder / version if version is not None and (folder / version).is_dir() else folder


def _files_of(folder: Path) -> dict[int, dict[str, Path]]:
    found: dict[int, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        match = _FILE.fullmatch(path.name)
        if match:
            files = found.setdefault(int(match["number"]), {})
            if match["split"] in files:
                raise ValueError(f"{folder} has two {match['split']} files of task {match['number']}")
            files[match["split"]] = path
    if not found:
        inside = [version for version in VERSIONS if (folder / version).is_dir()]
        hint = f"; it has the folders {', '.join(inside)}: choose one by version=" if inside else ""
        raise FileNotFoundError(f"{folder} has no files such as qa1_single-supporting-fact_train.txt{hint}")
    return found


def _choose(tasks: Sequence[int] | None, found: dict[int, dict[str, Path]], folder: Path) -> list[int]:
    if tasks is None:
        return sorted(found)
    if isinstance(tasks, (int, str)) or not all(type(number) is int for number in tasks):
        raise TypeError(f"tasks is {tasks!r}, expected a list of task numbers, such as [1, 2]")
    if not tasks or len(set(tasks)) < len(tasks):
        raise ValueError(f"tasks is {list(tasks)}, expected one task or more, each of them once")
    for number in tasks:
        if number not in found:
            raise FileNotFoundError(
                f"there is no task {number} in {folder}; there are {', '.join(map(str, sorted(found)))}"
            )
    return list(tasks)


def _check_size(stories: list[Story], version: str | None, path: Path) -> None:
    questions = sum(len(story.questions) for story in stories)
    if version is not None and (questions > _SMALL_SIZE) != (version == "en-10k"):
        other = VERSIONS[1 - VERSIONS.index(version)]
        raise ValueError(
            f"{path} has {questions} questions, which is not the size of {version!r}: choose {other!r}, or None for "
            "files of your own"
        )


def read_babi_file(path: str | Path, list_answers: str = "tokens") -> list[Story]:
    """Reads the stories of one file in the bAbI format.

    Args:
        path: the file, in UTF-8; blank lines are skipped.
        list_answers: "tokens" reads an answer with commas as several tokens, "class" as one.

    Returns:
        The stories, with all facts and questions.

    Raises:
        ValueError: what is wrong, with file and line.
    """
    check_list_answers(list_answers)
    path = Path(path)
    match = _FILE.fullmatch(path.name)
    reader = _FileReader(path, f"qa{match['number']}_{match['name']}" if match else path.stem, list_answers)
    with open(path, "rb") as file:
        for line, raw in enumerate(file, start=1):
            try:
                text = raw.decode("utf-8-sig" if line == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}, line {line}: not UTF-8 ({error.reason}); convert the file first") from error
            if text.strip():
                reader.read(line, text)
    if not reader.stories:
        raise ValueError(f"{path} is empty")
    return reader.stories


class _FileReader:
    """Takes the lines of one file and keeps, for the story at hand, which id is which fact."""

    def __init__(self, path: Path, task: str, list_answers: str):
        self.path, self.task, self.list_answers = path, task, list_answers
        self.stories: list[Story] = []
        self.fact_of_id: dict[int, int | None] = {}  # None for a question
        self.last_id = 0

    def read(self, line: int, text: str) -> None:
        place = f"{self.path}, line {line}"
        match = _LINE.fullmatch(text)
        if not match:
            raise ValueError(f"{place}: expected a number and a text, found {text[:60]!r}")
        number, content = int(match[1]), match[2]
        if number == 1:
            self.stories.append(Story(self.task))
            self.fact_of_id = {}
        elif not self.stories:
            raise ValueError(f"{place}: the first story begins with id {number}, expected 1")
        elif number <= self.last_id:
            raise ValueError(
                f"{place}: id {number} follows id {self.last_id}; ids go up, and a new story begins with 1"
            )
        self.last_id = number
        fields = [part.strip() for part in content.split("\t")]
        # A tab behind a fact, as some editors leave it, makes no question of it.
        if any(fields[1:]):
            self._read_question(place, number, fields)
        elif len(fields) > 1 and fields[0].endswith("?"):
            raise ValueError(f"{place}: the question {fields[0][:60]!r} has no answer")
        else:
            self._read_fact(place, number, fields[0])

    def _read_fact(self, place: str, number: int, text: str) -> None:
        if not text:
            raise ValueError(f"{place}: the fact is empty")
        if "?" in text:
            raise ValueError(f"{place}: {text[:60]!r} looks like a question, but no tab comes before its answer")
        story = self.stories[-1]
        self.fact_of_id[number] = len(story.facts)
        story.facts.append(text)

    def _read_question(self, place: str, number: int, fields: list[str]) -> None:
        story = self.stories[-1]
        if len(fields) > 3:
            raise ValueError(f"{place}: {len(fields) - 1} tabs, expected question, answer and supporting ids")
        question, answer, *rest = fields
        if not question:
            raise ValueError(f"{place}: the question is empty")
        if not story.facts:
            raise ValueError(f"{place}: story {len(self.stories) - 1} has no facts before its question")
        words = [word.strip() for word in answer.split(",")]
        if not all(words):
            raise ValueError(f"{place}: the answer {answer!r} is empty or has an empty part")
        self.fact_of_id[number] = None
        story.questions.append(
            Question(
                text=question,
                answer=tuple(words) if self.list_answers == "tokens" else (",".join(words),),
                supporting_facts=self._supporting(place, number, rest[0]) if rest and rest[0] else None,
                position=len(story.facts),
                source=place,
            )
        )

    def _supporting(self, place: str, number: int, ids: str) -> tuple[int, ...]:
        facts: dict[int, None] = {}
        for part in ids.split():
            if not part.isdecimal():
                raise ValueError(f"{place}: supporting id {part!r} is no number; ids are separated by blanks")
            fact = self.fact_of_id.get(int(part))
            if int(part) >= number:
                raise ValueError(
                    f"{place}: supporting id {part} is beyond the lines of the story that come before the question"
                )
            if fact is None:
                what = "is a question" if int(part) in self.fact_of_id else "is no line of the story"
                raise ValueError(f"{place}: supporting id {part} {what}, expected the id of a fact")
            facts[fact] = None
        return tuple(facts)


def format_babi(stories: Iterable[Story]) -> str:
    """The stories as the text of a bAbI file, which `read_babi_file` reads back as they were.

    Raises:
        ValueError: a text holds a tab or line end, or an answer a comma, which the format cannot hold.
    """
    lines = []
    for story in stories:
        ids: list[int] = []
        number = 0
        questions = sorted(story.questions, key=lambda question: question.position)
        for index in range(len(story.facts) + 1):
            while questions and questions[0].position == index:
                question, number = questions.pop(0), number + 1
                supporting = " ".join(str(ids[fact]) for fact in question.supporting_facts or ())
                for part in (question.text, *question.answer):
                    _check_writable(part, "\t\n\r")
                for word in question.answer:
                    _check_writable(word, ",")
                lines.append(f"{number} {question.text}\t{','.join(question.answer)}\t{supporting}")
            if index < len(story.facts):
                _check_writable(story.facts[index], "\t\n\r?")
                number += 1
                ids.append(number)
                lines.append(f"{number} {story.facts[index]}")
    return "".join(f"{line}\n" for line in lines)


def _check_writable(text: str, forbidden: str) -> None:
    for character in forbidden:
        if character in text:
            raise ValueError(f"{text!r:.60} holds {character!r}, which the bAbI format cannot hold there")
