"""The command `hf-metalstm`: finds the sub-command, and turns its errors into one line and an exit code."""

import argparse
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

from ._version import __version__

# In the order of the help text.
COMMANDS = ("demo", "answer", "convert", "info")
# What the package raises on purpose explains itself; other classes are named in the message.
_EXPLAINED = (ValueError, TypeError, OSError, ImportError)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command with all its sub-commands."""
    parser = argparse.ArgumentParser(
        prog="hf-metalstm", description="Classic NLP models as members of the Hugging Face stack."
    )
    parser.add_argument("--version", action="version", version=f"hf-metalstm {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        import_module(f".commands.{name}", __package__).add_parser(subparsers)
    for subparser in subparsers.choices.values():
        # Accepted on either side of the sub-command; without a default here the left one is kept.
        subparser.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `hf-metalstm`.

    Args:
        argv: arguments; None: those of the process.

    Returns:
        Exit code: 0; 1 after an error, which stands on stderr in one line; 130 when interrupted. Wrong usage exits
        with 2, as argparse does.
    """
    args = make_parser().parse_args(argv)
    command = import_module(f".commands.{args.command}", __package__)
    try:
        command.run(args)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of a pipe, such as `head`, has seen enough; there is nobody left to print to.
        sys.stderr.close()
        return 1
    # The one place where every error ends: a user gets a line, and the traceback on request.
    except Exception as error:
        if args.debug:
            traceback.print_exc()
        print(f"hf-metalstm {args.command}: error: {_one_line(error)}", file=sys.stderr)
        return 1
    return 0


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, _EXPLAINED):
        return text
    return f"{type(error).__name__}: {text} (--debug shows where)"


if __name__ == "__main__":
    sys.exit(main())
