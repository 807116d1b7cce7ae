"""The command ``heddle-eval``: each module here adds verbs of one subject to :data:`app`."""

from __future__ import annotations

import inspect
import re
import sys

import typer

from heddle_eval.errors import EvalError

app = typer.Typer(
    name="heddle-eval",
    help="What an observer can tell from packets: traces, defences, attacks, and the papers' tables.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command; exit code 1 is a failure that was explained, 2 a mistake in the command line."""
    for module in ("data", "defend", "attack", "paper", "sweep", "tenants"):
        __import__(f"heddle_eval.cli.{module}")
    for command in app.registered_commands:
        # A paragraph that begins with \b is left as it is, so that an example can be copied.
        text = inspect.getdoc(command.callback) or ""
        command.help = re.sub(r"(?m)^ *(?=heddle-eval )", "\b\n  ", text)
    try:
        app()
    except EvalError as e:
        print(f"heddle-eval: {e}", file=sys.stderr)
        if e.hint:
            print(f"hint: {e.hint}", file=sys.stderr)
        sys.exit(1)
