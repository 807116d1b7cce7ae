"""Tables for readers: text, Markdown, and what both share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MEASURES = {"r_precision": "r-precision", "recall": "recall", "f1": "F1"}


def cells(table: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Give the head and the rows of a table that :func:`heddle_eval.paper.answer` made."""
    head = ["data", "attack", "row"]
    for words in MEASURES.values():
        head += [words, "paper"]
    rows = []
    for row in table["rows"]:
        line = [row["data"], row["attack"], row["row"]]
        for name in MEASURES:
            line += [interval(row["ours"] and row["ours"].get(name)), number((row["paper"] or {}).get(name))]
        rows.append([*line, str(row["n"] or "-"), str(row["n_loads"] or "-"), str(row["seeds"] or "-")])
    return [*head, "traces", "loads", "seeds"], rows


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
    for d in table["data"]:
        how = "recorded split" if d["split"] else "recorded whole"
        yield (
            f"{d['name']}: {d['monitored']} monitored and {d['unmonitored']} unmonitored pages, {d['loads']} loads,"
            f" {d['traces']} traces, {how}; SHA-256 {d['sha256'][:16]}."
        )
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
    lines = [f"**{title(table)}**", "", marked(*cells(table), left=3), *(f"- {r}" for r in remarks(table))]
    return "\n".join(lines) + "\n"


def marked(head: list[str], rows: list[list[str]], left: int) -> str:
    """Write cells as Markdown, of which the first ``left`` columns are words."""
    lines = [_line(head), _line(["---"] * left + ["---:"] * (len(head) - left))]
    return "\n".join([*lines, *(_line([c.replace("|", "\\|") for c in row]) for row in rows)]) + "\n"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def text(table: dict[str, Any]) -> str:
    """Write a table as plain text, as wide as it is: a reader may scroll, and a file has no width."""
    return "\n".join([title(table), "", plain(*cells(table), left=3, group=2), *remarks(table)]) + "\n"


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
