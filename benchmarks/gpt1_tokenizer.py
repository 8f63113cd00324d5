#!/usr/bin/env python
"""How well the two text rules of GPT1Tokenizer agree: those of tokenizer.json, and ftfy with spaCy.

    python benchmarks/gpt1_tokenizer.py BPE_FOLDER TEXT_FILE...

BPE_FOLDER holds encoder_bpe_40000.json and vocab_40000.bpe; each line of a text file in UTF-8 is a text.
"""

import difflib
import sys
from importlib.metadata import version
from pathlib import Path

from hf_metalstm import GPT1Tokenizer


def agreement(texts: list[str], folder: Path) -> tuple[int, int, float, float]:
    """Texts, tokens of the exact form, share of tokens that both have in order, share of texts that are equal."""
    files = folder / "encoder_bpe_40000.json", folder / "vocab_40000.bpe"
    rules, exact = (GPT1Tokenizer.from_bpe_files(*files, text_rules=name) for name in ("tokenizers", "authors"))
    common = total = tokens = equal = 0
    for text in texts:
        one, two = (tokenizer(text, verbose=False).input_ids for tokenizer in (rules, exact))
        matcher = difflib.SequenceMatcher(None, one, two, autojunk=False)
        common += len(one) if one == two else sum(block.size for block in matcher.get_matching_blocks())
        total += len(one) + len(two)
        tokens += len(two)
        equal += one == two
    return len(texts), tokens, 2 * common / total, equal / len(texts)


def main() -> None:
    print(f"spaCy {version('spacy')}, ftfy {version('ftfy')}, tokenizers {version('tokenizers')}\n")
    print("| file | texts | tokens | same tokens | same texts |\n|---|---:|---:|---:|---:|")
    for name in sys.argv[2:]:
        lines = Path(name).read_text(encoding="utf-8", errors="replace").splitlines()
        texts, tokens, same, equal = agreement([line for line in lines if line.strip()], Path(sys.argv[1]))
        print(f"| {Path(name).name} | {texts:,} | {tokens:,} | {same:.3%} | {equal:.2%} |", flush=True)


if __name__ == "__main__":
    main()
