"""DMNTokenizer: what it learns from stories, how it encodes them, and that a saved one does the same elsewhere."""

import json
import shutil
import subprocess
import sys
import warnings
from collections import Counter

import pytest
import torch
from datasets import Dataset, DatasetDict
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, TokenizersBackend

from hf_metalstm import DMNTokenizer

ROWS = {
    "facts": [
        ["Ada ran home.", "Otto took the key."],
        ["Ada ran home.", "Otto took the key.", "It rained."],
        ["Go, Ada!"],
    ],
    "question": ["Where is Ada?", "What has Otto?", "Who goes?"],
    "answer": [["Attic"], ["key,lamp"], ["Ada", "Otto"]],
}


@pytest.fixture(scope="module")
def tokenizer() -> DMNTokenizer:
    return DMNTokenizer.train_from_dataset(Dataset.from_dict(ROWS))


def words_of(tokenizer: DMNTokenizer, rows: list[list[int]]) -> list[list[str]]:
    return [tokenizer.convert_ids_to_tokens(row) for row in rows]


def test_words_of_facts_questions_and_answers_are_learned(tokenizer):
    words = set("ada ran home . otto took the key it rained go , ! where is ? what has who goes attic".split())
    assert set(tokenizer.get_vocab()) == {"<pad>", "<unk>", "<s>", "</s>", *words, "key,lamp"}
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))
    assert tokenizer.convert_ids_to_tokens(range(4)) == ["<pad>", "<unk>", "<s>", "</s>"]


def test_facts_that_questions_share_count_once():
    tokenizer = DMNTokenizer.train_from_dataset(Dataset.from_dict(ROWS), min_frequency=2)
    counts = Counter("ada ran home . otto took the key . it rained . go , ada !".split())
    counts.update("where is ada ? what has otto ? who goes ?".split())
    often = {word for word, count in counts.items() if count >= 2}
    assert set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens) == often | {"attic", "key,lamp"}


@given(st.integers(0, 30))
def test_answers_stay_when_the_vocabulary_is_small(size):
    data = Dataset.from_dict(ROWS)
    answers = {"attic", "key,lamp", "ada", "otto"}
    if size < 8:
        with pytest.raises(ValueError, match=f"max_size is {size}, but 4 special tokens and 4 answers need 8"):
            DMNTokenizer.train_from_dataset(data, max_size=size)
        return
    tokenizer = DMNTokenizer.train_from_dataset(data, max_size=size)
    full = DMNTokenizer.train_from_dataset(data)
    assert len(tokenizer) == min(size, len(full))
    assert answers <= set(tokenizer.get_vocab())
    order = [word for word in sorted(full.get_vocab(), key=full.get_vocab().get) if word in tokenizer.get_vocab()]
    assert order == sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)


def test_of_several_splits_train_alone_is_read():
    train = Dataset.from_dict({"facts": [["a b"]], "question": ["c?"], "answer": [["d"]]})
    test = Dataset.from_dict({"facts": [["x"]], "question": ["y?"], "answer": [["z"]]})
    tokenizer = DMNTokenizer.train_from_dataset(DatasetDict(train=train, test=test))
    assert set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens) == set("abcd?")
    with pytest.raises(ValueError, match="there is no train split to learn from, but test"):
        DMNTokenizer.train_from_dataset(DatasetDict(test=test))
    with pytest.raises(ValueError, match="the dataset has no column 'answer'; it has facts, question"):
        DMNTokenizer.train_from_dataset(train.remove_columns("answer"))


def test_an_answer_spelt_as_a_special_token_is_not_learned():
    data = Dataset.from_dict({"facts": [["a"]], "question": ["b"], "answer": [["<unk>", "c"]]})
    tokenizer = DMNTokenizer.train_from_dataset(data)
    assert tokenizer.get_vocab() == {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, "a": 4, "b": 5, "c": 6}


def test_case_splitting_and_special_tokens_are_options():
    data = Dataset.from_dict(ROWS)
    tokenizer = DMNTokenizer.train_from_dataset(data, lowercase=False, split="whitespace", eos_token="[END]")
    assert {"Ada", "home.", "Attic"} <= set(tokenizer.get_vocab()) and "attic" not in tokenizer.get_vocab()
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode_answer(["Attic"])) == ["Attic", "[END]"]
    with pytest.raises(ValueError, match="the answer 'attic' is not in the vocabulary"):
        tokenizer.encode_answer(["attic"])


def test_stories_are_encoded_fact_by_fact(tokenizer):
    stories = [
        {"facts": ["Ada ran home.", "It rained."], "question": "Where is Ada?", "answer": ["attic"]},
        {"context": "Otto took the key. Go, Ada!", "question": "Who goes?"},
    ]
    first, second = tokenizer.encode_stories(stories)
    assert words_of(tokenizer, first["input_ids"]) == [["ada", "ran", "home", "."], ["it", "rained", "."]]
    assert words_of(tokenizer, [first["question_ids"], first["labels"]]) == [
        ["where", "is", "ada", "?"],
        ["attic", "</s>"],
    ]
    assert words_of(tokenizer, second["input_ids"]) == [["otto", "took", "the", "key", "."], ["go", ",", "ada", "!"]]
    assert "labels" not in second
    assert tokenizer.encode_stories([]) == []


def test_answers_are_whole_tokens_and_end(tokenizer):
    ids = tokenizer.get_vocab()
    assert tokenizer.encode_answer(["KEY,lamp"]) == [ids["key,lamp"], tokenizer.eos_token_id]
    assert tokenizer.encode_answer(["ada", "otto"]) == [ids["ada"], ids["otto"], tokenizer.eos_token_id]
    assert tokenizer.encode_answer("Ada  Otto") == tokenizer.encode_answer(["ada", "otto"])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (["lamp"], "the answer 'lamp' is not in the vocabulary of 26 tokens"),
        (["ada", "lamp"], "the answer 'lamp' is not in the vocabulary"),
        (["key , lamp"], "the answer 'key , lamp' is not in the vocabulary"),
        (["<unk>"], "the answer '<unk>' is not in the vocabulary"),
        (["</s>"], "the answer '</s>' is not in the vocabulary"),
        ([], r"the answer \[\] is empty"),
        (["ada", " "], "is empty, or has an empty token"),
        ("  ", "the answer '  ' is empty"),
    ],
)
def test_an_answer_that_no_model_could_give_is_refused(tokenizer, answer, message):
    with pytest.raises(ValueError, match=message):
        tokenizer.encode_answer(answer)
    with pytest.raises(ValueError, match=f"story 1: .*{message}"):
        good = {"facts": ["a"], "question": "b", "answer": ["ada"]}
        tokenizer.encode_stories([good, {**good, "answer": answer}], unknown_words="allow")


def test_generated_answers_are_decoded_up_to_their_end(tokenizer):
    ada, otto, both = (tokenizer.get_vocab()[word] for word in ("ada", "otto", "key,lamp"))
    pad, end, begin = tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id
    rows = [[begin, ada, otto, end, ada], [both, end, pad, pad, pad], [ada, -100, pad, otto, otto], [end] * 5]
    expected = [["ada", "otto"], ["key,lamp"], ["ada", "otto", "otto"], []]
    assert tokenizer.decode_answers(rows) == tokenizer.decode_answers(torch.tensor(rows)) == expected


def test_unknown_words_are_listed_in_one_warning(tokenizer):
    stories = [
        {"facts": ["Zoe ran home.", "Zoe ran, UP!"], "question": "Where is Zoe?"},
        {"facts": ["Otto went up <unk>."], "question": "Huh?"},
    ]
    with pytest.warns(UserWarning) as caught:
        encoded = tokenizer.encode_stories(stories)
    assert [str(warning.message) for warning in caught] == [
        "4 words are not in the vocabulary and read as <unk>: zoe, up, went, huh"
    ]
    assert caught[0].filename == __file__
    assert words_of(tokenizer, encoded[0]["input_ids"])[0] == ["<unk>", "ran", "home", "."]
    with pytest.raises(ValueError, match="4 words are not in the vocabulary: zoe, up, went, huh"):
        tokenizer.encode_stories(stories, unknown_words="refuse")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tokenizer.encode_stories(stories, unknown_words="allow") == encoded
        tokenizer.encode_stories([{"facts": ["Ada ran."], "question": "Who?"}])
    with pytest.raises(ValueError, match="unknown_words is 'ignore'; allowed: 'warn', 'refuse', 'allow'"):
        tokenizer.encode_stories(stories, unknown_words="ignore")


def test_a_question_of_unknown_words_alone_is_encoded(tokenizer):
    with pytest.warns(UserWarning, match="2 words .*: xyz, abc"):
        (encoded,) = tokenizer.encode_stories([{"facts": ["Ada ran."], "question": "xyz abc"}])
    assert encoded["question_ids"] == [tokenizer.unk_token_id] * 2


def test_a_long_list_of_unknown_words_is_cut(tokenizer):
    fact = " ".join(f"x{number}" for number in range(60))
    with pytest.warns(UserWarning, match="60 words are not .*x49 and 10 more$"):
        tokenizer.encode_stories([{"facts": [fact], "question": "Who?"}])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"facts": []}, ValueError, "story 1 has no facts"),
        ({"facts": None}, ValueError, "story 1 has no facts"),
        ({"facts": None, "context": " ... "}, ValueError, "story 1 has no facts"),
        ({"context": "Ada ran."}, ValueError, "story 1 has facts and a context: give one"),
        ({"facts": None, "context": ["Ada ran."]}, TypeError, "the context of story 1 is .*, expected a text"),
        ({"facts": "Ada ran."}, TypeError, "the facts of story 1 are 'Ada ran.', expected a list of sentences"),
        ({"facts": ["Ada ran.", ""]}, ValueError, "fact 1 of story 1 is empty"),
        ({"facts": ["Ada ran.", 5]}, TypeError, r"fact 1 of story 1 is 5 \(int\), expected a sentence"),
        ({"question": ""}, ValueError, "the question of story 1 is empty"),
        ({"question": "\n"}, ValueError, "the question of story 1 is empty"),
        ({"question": None}, ValueError, "the question of story 1 is missing"),
        ({"question": ["a"]}, TypeError, "the question of story 1 is .*, expected a text"),
    ],
)
def test_what_is_no_story_is_named(tokenizer, change, error, message):
    good = {"facts": ["Ada ran."], "question": "Who?"}
    with pytest.raises(error, match=message):
        tokenizer.encode_stories([good, {**good, **change}])
    with pytest.raises(error, match=message.replace("story 1", "my file, line 7")):
        tokenizer.encode_stories([{**good, **change}], names=["my file, line 7"])


SENTENCES = st.lists(st.sampled_from("Ada otto RAN home key unseen .".split()), min_size=1, max_size=5).map(" ".join)


FIXED = DMNTokenizer.train_from_dataset(Dataset.from_dict(ROWS))


@given(st.lists(st.tuples(st.lists(SENTENCES, min_size=1, max_size=4), SENTENCES), max_size=5))
def test_each_sentence_is_encoded_as_if_it_stood_alone(stories):
    encoded = FIXED.encode_stories([{"facts": f, "question": q} for f, q in stories], unknown_words="allow")
    for row, (facts, question) in zip(encoded, stories, strict=True):
        expected = [
            [w if w in FIXED.get_vocab() else "<unk>" for w in text.lower().split()] for text in [*facts, question]
        ]
        assert words_of(FIXED, [*row["input_ids"], row["question_ids"]]) == expected


TEXTS = ["Ada ran home.", "Don’t; unseen", "cafe\u0301"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_saved_tokenizer_does_the_same_here(lowercase, tmp_path):
    tokenizer = DMNTokenizer.train_from_dataset(Dataset.from_dict(ROWS), lowercase=lowercase)
    tokenizer.save_pretrained(tmp_path)
    for load in (DMNTokenizer, AutoTokenizer):
        loaded = load.from_pretrained(tmp_path)
        assert type(loaded) is DMNTokenizer
        assert loaded.get_vocab() == tokenizer.get_vocab()
        assert [loaded(text).input_ids for text in TEXTS] == [tokenizer(text).input_ids for text in TEXTS]
        answer = ["key,lamp"]
        assert loaded.encode_answer(answer) == tokenizer.encode_answer(answer)
        assert loaded.decode_answers([loaded.encode_answer(answer)]) == [answer]
    assert sorted(path.name for path in tmp_path.glob("*.py")) == [
        "sentences.py",
        "tokenization_dmn.py",
        "tokenization_word.py",
    ]


ELSEWHERE = """
import json, sys
class Absent:
    def find_spec(self, name, *_):
        if name.split(".")[0] == "hf_metalstm":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from transformers import AutoTokenizer, TokenizersBackend
folder, without_code, again, texts = json.loads(sys.argv[1])
tokenizers = [TokenizersBackend.from_pretrained(folder), AutoTokenizer.from_pretrained(without_code)]
tokenizers.append(AutoTokenizer.from_pretrained(folder, trust_remote_code=True))
tokenizers[-1].save_pretrained(again)
tokenizers.append(AutoTokenizer.from_pretrained(again, trust_remote_code=True))
ids = [[one(text).input_ids for text in texts] for one in tokenizers]
story = {"context": "Ada ran home. It rained.", "question": "Where is Ada?", "answer": ["key,lamp"]}
stories = [one.encode_stories([story]) for one in tokenizers[2:]]
print(json.dumps([[type(one).__name__ for one in tokenizers], ids, stories]))
"""


def test_a_process_without_this_package_loads_it_with_and_without_its_code(tokenizer, tmp_path):
    folder, without_code, again = (str(tmp_path / name) for name in ("saved", "without_code", "again"))
    tokenizer.save_pretrained(folder)
    shutil.copytree(folder, without_code, ignore=shutil.ignore_patterns("*.py"))
    config = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert "tokenization_dmn.DMNTokenizer" in config.pop("auto_map")["AutoTokenizer"]
    (tmp_path / "without_code" / "tokenizer_config.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, json.dumps([folder, without_code, again, TEXTS])],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    classes, ids, stories = json.loads(done.stdout.splitlines()[-1])
    assert classes == ["TokenizersBackend", "TokenizersBackend", "DMNTokenizer", "DMNTokenizer"]
    assert ids == [[tokenizer(text).input_ids for text in TEXTS]] * 4
    story = {"context": "Ada ran home. It rained.", "question": "Where is Ada?", "answer": ["key,lamp"]}
    assert stories == [tokenizer.encode_stories([story])] * 2


def test_the_plain_class_gives_the_same_ids(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    plain = TokenizersBackend.from_pretrained(tmp_path)
    assert [plain(text).input_ids for text in TEXTS] == [tokenizer(text).input_ids for text in TEXTS]
