"""Sub-commands of `hf-metalstm`, one module each: `add_parser(subparsers)` and `run(args)`.

The modules stay quick to import: what takes seconds (torch, transformers) is imported by `run`.
"""
