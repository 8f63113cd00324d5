"""`hf-metalstm convert`: weights from elsewhere, and back."""

import argparse
from pathlib import Path
from typing import Any

_HEADS = {
    "language-model": "GPT1LMHeadModel",
    "double-heads": "GPT1DoubleHeadsModel",
    "classification": "GPT1ForSequenceClassification",
    "none": "GPT1Model",
}
_BPE_FILES = ("encoder_bpe_40000.json", "vocab_40000.bpe")


def add_parser(subparsers: Any) -> None:
    """Adds the sub-command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "convert",
        help="read weights of other projects, and write them",
        description="Converts weights between this package and other projects. No code in the files is run.",
    )
    families = parser.add_subparsers(dest="family", metavar="FAMILY", required=True)
    gpt1 = families.add_parser(
        "gpt1",
        help="GPT-1: the authors' shards, or a folder or Hub name of transformers' OpenAIGPT",
        description="SOURCE is a folder with the authors' params_shapes.json and params_*.npy, or a folder or Hub name "
        "of transformers' OpenAIGPT. With --export, SOURCE is a folder of this package, and OUTPUT an OpenAIGPT.",
    )
    gpt1.add_argument("source", metavar="SOURCE")
    gpt1.add_argument("output", metavar="OUTPUT", type=Path, help="folder to write")
    gpt1.add_argument("--head", choices=list(_HEADS), default="language-model", help="default: language-model")
    gpt1.add_argument(
        "--bpe",
        type=Path,
        metavar="DIR",
        help=f"folder of {' and '.join(_BPE_FILES)}: also write the tokenizer, and give the model rows for its tokens",
    )
    gpt1.add_argument("--export", action="store_true", help="write the layout of transformers' OpenAIGPT")


def run(args: argparse.Namespace) -> None:
    """Converts."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    _convert_gpt1(args)


def _convert_gpt1(args: argparse.Namespace) -> None:
    from ..convert.gpt1 import SHAPES_FILE, load_openai_shards, save_as_openai_gpt
    from ..modeling.modeling_gpt1 import GPT1PreTrainedModel

    model_class = _model_class(args.head)
    model: GPT1PreTrainedModel
    if (Path(args.source) / SHAPES_FILE).exists():
        model = load_openai_shards(args.source, model_class)
    else:
        model = model_class.from_pretrained(args.source)
    if args.export:
        if args.bpe is not None:
            raise ValueError("--bpe goes with reading weights, not with --export")
        save_as_openai_gpt(model, args.output)
    else:
        if args.bpe is not None:
            from ..tokenization.tokenization_gpt1 import GPT1Tokenizer

            tokenizer = GPT1Tokenizer.from_bpe_files(*(args.bpe / name for name in _BPE_FILES))
            tokenizer.add_task_tokens(model)
            tokenizer.save_pretrained(args.output)
        model.save_pretrained(args.output)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"wrote {type(model).__name__} with {parameters:,} parameters to {args.output}")


def _model_class(head: str) -> Any:
    import hf_metalstm

    return getattr(hf_metalstm, _HEADS[head])
