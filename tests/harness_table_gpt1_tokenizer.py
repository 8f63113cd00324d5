"""The tokenizer of GPT-1 in the table of transformers' own common tests (see test_harness.py)."""

from hf_harness import TokenizerCase

import hf_metalstm
from hf_metalstm import GPT1Tokenizer


def gpt1_tokenizer() -> GPT1Tokenizer:
    words = "a b c d e hello world this is text some other lower newer the of and to in with"
    return GPT1Tokenizer.train_from_iterator([words] * 2)


CASES = [
    TokenizerCase(
        name="GPT1Tokenizer",
        tokenizer_class=GPT1Tokenizer,
        make_tokenizer=gpt1_tokenizer,
        setup=hf_metalstm._registration.register,
    ),
]
