"""How well attacks tell page loads apart under each strategy of a defence, and what the strategy costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from heddle_eval import attacks, experiment, report
from heddle_eval.errors import EvalError
from heddle_eval.traces import Traces


def compare(
    sets: Mapping[str, Traces],
    names: Sequence[str] = ("k-fp", "cumul", "df"),
    *,
    preset: str = "laptop",
    seeds: int = 5,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Attack each data set in the closed world, and compare what a load costs with the first of them.

    Parameters
    ----------
    sets
        Data sets by strategy. All have the same classes; the first is the baseline of the costs.
    names
        Attacks.
    preset
        Of the attacks.
    seeds
        Repetitions, each with another tenth of the loads to test on.
    settings
        Parameters of attacks, by name.
    progress
        Told what is done next.

    Returns
    -------
    dict
        ``chance`` and ``rows``: for each strategy its ``loads``, ``cost`` (bytes, packets and seconds of a load over
        those of the baseline; mean over classes), and for each attack the accuracy with its 95 % interval by bootstrap
        over loads.

    Raises
    ------
    EvalError
        Where the data sets have different classes.

    """
    first = next(iter(sets.values()))
    if odd := [name for name, t in sets.items() if t.names != first.names]:
        raise EvalError(
            odd[0], "it has other pages than the first data set", "record all strategies with the same pages"
        )
    per_class = {name: _means(t) for name, t in sets.items()}
    base = next(iter(per_class.values()))
    rows = []
    for name, traces in sets.items():
        found = {}
        for attack in names:
            progress(f"{name}: {attack}")
            own = dict((settings or {}).get(attack, {}))
            results = [
                experiment.run(traces, attacks.make(attack, preset, seed, **own), world="closed", seed=seed)
                for seed in range(seeds)
            ]
            found[attack] = experiment.measure(results)["accuracy"]
        cost = (per_class[name] / base).mean(0)
        rows.append(
            {
                "strategy": name,
                "loads": len(np.unique(traces.load)),
                "cost": dict(zip(("bytes", "packets", "seconds"), map(float, cost), strict=True)),
                "accuracy": found,
            }
        )
    return {"preset": preset, "seeds": seeds, "classes": len(first.names), "chance": 1 / len(first.names), "rows": rows}


def _means(traces: Traces) -> np.ndarray:
    """(classes, 3) bytes, packets and seconds of a load, mean over the loads of each class."""
    owner, n = traces.owner, len(traces)
    last = np.zeros(n)
    np.maximum.at(last, owner, traces.time)
    of_trace = np.stack([np.bincount(owner, np.abs(traces.size), n), traces.lengths, last], axis=1)
    out = np.zeros((len(traces.names), 3))
    for c in range(len(traces.names)):
        mine = traces.label == c
        if not mine.any():
            raise EvalError(traces.names[c], "there is no load of it")
        out[c] = of_trace[mine].sum(0) / len(np.unique(traces.load[mine]))
    return out


def cells(answer: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Give the head and the rows of a table."""
    names = list(answer["rows"][0]["accuracy"])
    head = ["strategy", *names, "bytes", "packets", "seconds", "loads"]
    rows = [
        [
            row["strategy"],
            *(report.interval(row["accuracy"][name]) for name in names),
            *(f"{row['cost'][k]:.2f}" for k in ("bytes", "packets", "seconds")),
            str(row["loads"]),
        ]
        for row in answer["rows"]
    ]
    return head, rows


def remarks(answer: dict[str, Any]) -> list[str]:
    """Give the lines below the table."""
    return [
        f"Accuracy in a closed world of {answer['classes']} classes, of which chance names {answer['chance']:.3f};"
        f" preset {answer['preset']}, {answer['seeds']} repetitions, each of which learns from nine tenths of the loads"
        " and is tested on the others. Brackets: 95 % intervals by bootstrap over loads.",
        f"Bytes, packets and seconds of a load: those of {answer['rows'][0]['strategy']} are 1; mean over classes.",
    ]


def text(answer: dict[str, Any]) -> str:
    """Write the table as plain text."""
    return report.plain(*cells(answer), left=1) + "\n" + "\n".join(remarks(answer)) + "\n"


def markdown(answer: dict[str, Any]) -> str:
    """Write the table as Markdown."""
    return report.marked(*cells(answer), left=1) + "\n" + "\n".join(f"- {r}" for r in remarks(answer)) + "\n"
