"""The verb of a cloud's tenants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from heddle_eval.cli import app
from heddle_eval.errors import EvalError


@app.command()
def tenants(
    file: Annotated[Path, typer.Argument(metavar="SEEN.jsonl", help="What heddle lab tenants --out wrote.")],
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="TENANT", help="Leave out a tenant; may be repeated.")
    ] = None,
    trees: Annotated[int, typer.Option(min=1, help="Of each forest.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of the forests.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON, also how many of each tenant's.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Answer in Markdown.")] = False,
) -> None:
    """Tell the tenants of a cloud apart by the connections to them, and name what tells.

    A random forest learns from some pseudonyms of each tenant, and tells the connections by the others.

    For example:

      heddle-eval tenants seen.jsonl

      heddle-eval tenants seen.jsonl --without kernel --without link --markdown
    """
    import sys

    from heddle_eval import tenants as judged

    if as_json and as_markdown:
        raise EvalError("tenants", "--json and --markdown exclude each other")
    said = (lambda what: print(what, file=sys.stderr)) if sys.stderr.isatty() else (lambda what: None)
    answer = judged.judge(judged.read(file), without=without or [], trees=trees, seed=seed, progress=said)
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        print(judged.markdown(answer) if as_markdown else judged.text(answer), end="")
