"""The results of a comparison as tables, for terminals and for Markdown."""

from collections.abc import Callable, Iterable, Sequence

from .comparison_results import SystemResult

Rows = list[list[str]]


def score_rows(results: Sequence[SystemResult], split: str = "test") -> Rows:
    """Accuracy in per cent: a header, a row a task, and the average.

    Args:
        results: of the systems, one column each.
        split: "dev", "test" or "test_unique".
    """
    by_system = [result.scores(split) for result in results]
    tasks = list(dict.fromkeys(task for scores in by_system for task in scores))
    rows = [["task", *(result.title for result in results)]]
    for task in tasks:
        rows.append([task, *(_percent(scores[task]) if task in scores else "-" for scores in by_system)])
    return [*rows, ["average", *(_percent(result.average(split)) for result in results)]]


def cost_rows(results: Sequence[SystemResult]) -> Rows:
    """What each system takes: models, parameters, time. All models of a system together."""
    facts: list[tuple[str, Callable[[SystemResult], str]]] = [
        ("models", lambda result: str(len(result.models))),
        ("parameters", lambda result: f"{result.total('parameters'):,.0f}"),
        (
            "  without embeddings",
            lambda result: f"{result.total('parameters') - result.total('embedding_parameters'):,.0f}",
        ),
        ("seconds an epoch", lambda result: f"{result.total('seconds_an_epoch'):.1f}"),
        ("training time", lambda result: _duration(result.total("seconds"))),
        ("best epoch", lambda result: _span(model.best_epoch for model in result.models)),
    ]
    return [["", *(result.title for result in results)]] + [
        [name, *(fact(result) for result in results)] for name, fact in facts
    ]


def as_text(rows: Rows, rules: Iterable[int] = (1,)) -> str:
    """Aligned columns, the first to the left, the others to the right.

    Args:
        rows: of cells, all of one length.
        rules: rows before which a line is drawn.

    Example:
        >>> print(as_text([["task", "LSTM"], ["books", "81.5"]]))
        task   LSTM
        -----  ----
        books  81.5
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rule = "  ".join("-" * width for width in widths)
    lines = []
    for index, row in enumerate(rows):
        if index in rules:
            lines.append(rule)
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def as_markdown(rows: Rows) -> str:
    """A Markdown table whose header is the first row, aligned in its source too.

    Example:
        >>> print(as_markdown([["task", "LSTM"], ["books", "81.5"]]))
        | task  | LSTM |
        | ----- | ---: |
        | books | 81.5 |
    """
    rows = [[cell.strip() for cell in row] for row in rows]
    widths = [max(4, *(len(row[column]) for row in rows)) for column in range(len(rows[0]))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = []
    for row in [rows[0], rule, *rows[1:]]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def _span(values: Iterable[float]) -> str:
    numbers = sorted(set(values))
    return f"{numbers[0]:g}" if len(numbers) == 1 else f"{numbers[0]:g} to {numbers[-1]:g}"
