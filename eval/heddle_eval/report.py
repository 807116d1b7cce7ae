"""Tables for readers: text, Markdown, and what both share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

MEASURES = {"r_precision": "r-precision", "recall": "recall", "f1": "F1"}


KINDS: dict[str, Callable[[Any], str]] = {
    "text": lambda value: value or "-",
    "number": lambda value: number(value),
    "interval": lambda value: interval(value),
    "count": lambda value: str(value or "-"),
}
"""How a cell is written. Words come first in a table."""


def cells(table: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Give the head and the rows of a table.

    Its ``columns`` are a list of dict: ``key`` leads to the cell in a row of ``rows``, with a dot before each further
    level, any of which may be missing or None; ``words`` is the head; ``kind`` is one of :data:`KINDS`.
    """
    columns = table["columns"]
    rows = [[KINDS[c["kind"]](_cell(row, c["key"])) for c in columns] for row in table["rows"]]
    return [c["words"] for c in columns], rows


def _cell(row: Any, key: str) -> Any:
    for part in key.split("."):
        row = (row or {}).get(part)
    return row


def words(table: dict[str, Any]) -> int:
    """How many columns of a table are words."""
    return sum(c["kind"] == "text" for c in table["columns"])


def number(value: float | None) -> str:
    """Three decimals, or a dash."""
    return "-" if value is None else f"{value:.3f}"


def interval(found: dict[str, float | None] | None) -> str:
    """Value and interval, or a dash."""
    if not found or found["value"] is None:
        return "-"
    ends = "" if found["low"] is None else f" [{found['low']:.3f}, {found['high']:.3f}]"
    return number(found["value"]) + ends


def title(table: dict[str, Any]) -> str:
    """Give the line above a table."""
    return f"{table['title']} ({table['source']}), preset {table['preset']}"


def remarks(table: dict[str, Any]) -> Iterator[str]:
    """Give the lines below a table: what the data are, which findings hold, notes."""
    for d in table.get("data", []):
        how = "recorded split" if d["split"] else "recorded whole"
        yield (
            f"{d['name']}: {d['monitored']} monitored and {d['unmonitored']} unmonitored pages, {d['loads']} loads,"
            f" {d['traces']} traces, {how}; SHA-256 {d['sha256'][:16]}."
        )
    if "r" not in table:
        yield from table["notes"]
        return
    yield (
        f"r = {table['r']}. Brackets: 95 % intervals by bootstrap over page loads. Traces: how many were tested, over"
        " all seeds; loads: of how many page loads, each counted once."
    )
    if any(r["ours"] and r["ours"].get("fpr", {}).get("value") == 0 for r in table["rows"]):
        yield (
            "Where no unmonitored trace was taken for a monitored one, resampling cannot show that some may be: with n"
            " of them tested, a rate of up to 3 / n would fit as well, and r-precision could be as much lower."
        )
    for c in table["claims"]:
        verdict = "holds" if c["holds"] else "does not hold"
        apart = ", intervals apart" if c["apart"] else (", intervals touch" if c["holds"] else "")
        values = " / ".join(map(number, c["values"]))
        name = MEASURES.get(c["measure"], c["measure"])
        yield f"{c['says']}, {name}, {c['attack']} on {c['data']}: {verdict} ({values}{apart})."
    yield from table["notes"]


def markdown(table: dict[str, Any]) -> str:
    """Write a table as Markdown."""
    lines = [f"**{title(table)}**", "", marked(*cells(table), left=words(table)), *(f"- {r}" for r in remarks(table))]
    return "\n".join(lines) + "\n"


def marked(head: list[str], rows: list[list[str]], left: int) -> str:
    """Write cells as Markdown, of which the first ``left`` columns are words."""
    lines = [_line(head), _line(["---"] * left + ["---:"] * (len(head) - left))]
    return "\n".join([*lines, *(_line([c.replace("|", "\\|") for c in row]) for row in rows)]) + "\n"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def text(table: dict[str, Any]) -> str:
    """Write a table as plain text, as wide as it is: a reader may scroll, and a file has no width."""
    return "\n".join([title(table), "", plain(*cells(table), left=words(table), group=2), *remarks(table)]) + "\n"


def plain(head: list[str], rows: list[list[str]], left: int, group: int = 0) -> str:
    """Write cells as plain text; an empty line parts rows that differ in the first ``group`` columns."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [_row(head, widths, left), _row(["-" * w for w in widths], widths, left)]
    before = None
    for row in rows:
        if before is not None and row[:group] != before:
            lines.append("")
        before = row[:group]
        lines.append(_row(row, widths, left))
    return "\n".join(lines) + "\n"


def _row(cells: list[str], widths: list[int], left: int) -> str:
    padded = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
    return "  ".join(padded).rstrip()
