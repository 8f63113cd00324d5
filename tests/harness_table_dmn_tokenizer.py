"""The tokenizer of memory networks in the table of transformers' own common tests (see test_harness.py)."""

from hf_harness import TokenizerCase

import hf_metalstm
from hf_metalstm import DMNTokenizer


def dmn_tokenizer() -> DMNTokenizer:
    words = "a b c d e hello world this is text some other lower newer the of and to in with"
    return DMNTokenizer.train_from_iterator([words])


CASES = [
    TokenizerCase(
        name="DMNTokenizer",
        tokenizer_class=DMNTokenizer,
        make_tokenizer=dmn_tokenizer,
        setup=hf_metalstm._registration.register,
    ),
]
