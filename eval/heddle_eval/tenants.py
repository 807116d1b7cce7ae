"""How well a random forest tells the tenants of a cloud apart, by what ``heddle lab tenants`` saw of connections."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction import DictVectorizer

from heddle_eval import bootstrap, metrics, report
from heddle_eval.errors import EvalError

REPEATS = 3
"""Times that each thing is shuffled."""

ALL = "all"
"""What stands for all kinds of things in answers."""


@dataclass(frozen=True)
class Connection:
    """A connection as an observer saw it.

    Attributes
    ----------
    way
        How the client came to the tenant, such as ``handoff``.
    tenant, pseudonym
        Whom it came to, and by which name.
    seen
        What was read of it: numbers and words, by name. A name begins with its kind, as in ``packets: MSS``.

    """

    way: str
    tenant: str
    pseudonym: str
    seen: dict[str, float | str]


def read(file: str | Path) -> list[Connection]:
    """Read what ``heddle lab tenants --out`` wrote.

    Raises
    ------
    EvalError
        Where the file is something else.

    """
    try:
        lines = Path(file).read_text().splitlines()
        found = [Connection(**json.loads(line)) for line in lines]
    except OSError as e:
        raise EvalError(str(file), e.strerror or "it cannot be read") from e
    except (ValueError, TypeError) as e:
        raise EvalError(str(file), f"it has no connections: {e}", "heddle lab tenants --out writes such a file") from e
    if not found:
        raise EvalError(str(file), "it has no connections")
    return found


def judge(
    connections: Sequence[Connection],
    *,
    without: Collection[str] = (),
    trees: int = 200,
    seed: int = 0,
    most: int = 5,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Tell the tenants of each way apart, by each kind of things and by all.

    Each connection is told once, by a forest that has seen no connection by the same pseudonym: an observer learns from
    pseudonyms of his own, and what tells those, such as the length of a signature in a certificate, tells no tenant.

    Parameters
    ----------
    connections
        From :func:`read`.
    without
        Tenants that are left out.
    trees, seed
        Of the forests.
    most
        So many things are named that tell, at most.
    progress
        Told what is done next.

    Returns
    -------
    dict
        ``tenants``, ``chance``, and ``rows``: for each ``way`` and ``kind`` the ``connections``, the ``accuracy`` with
        its 95 % interval by bootstrap over pseudonyms, the share of each tenant's connections that was told
        (``recall``), and the ``telling`` things, with that by which accuracy ``falls`` where they are shuffled.

    Raises
    ------
    EvalError
        Where there are not two tenants, or not two pseudonyms of each.

    """
    names = sorted({c.tenant for c in connections} - set(without))
    if unknown := set(without) - {c.tenant for c in connections}:
        raise EvalError(sorted(unknown)[0], "there is no such tenant")
    if len(names) < 2:
        raise EvalError("tenants", "there are not two to tell apart")
    rows = []
    for way in dict.fromkeys(c.way for c in connections):
        some = [c for c in connections if c.way == way and c.tenant in names]
        kinds = list(dict.fromkeys(_kind(name) for c in some for name in c.seen))
        for kind in [*kinds, ALL]:
            progress(f"{way}: {kind}")
            rows.append({"way": way, "kind": kind} | _told(some, kind, names, trees, seed, most))
    return {"tenants": names, "chance": 1 / len(names), "trees": trees, "seed": seed, "rows": rows}


def _kind(name: str) -> str:
    return name.partition(":")[0]


def _told(
    some: Sequence[Connection], kind: str, names: Sequence[str], trees: int, seed: int, most: int
) -> dict[str, Any]:
    seen = [{k: v for k, v in c.seen.items() if kind in (ALL, _kind(k))} for c in some]
    vectors = DictVectorizer(sparse=False)
    values = vectors.fit_transform(seen)
    things = np.array([column.partition("=")[0] for column in vectors.feature_names_])
    truth = np.array([names.index(c.tenant) for c in some])
    own = _numbers(some)
    parts = int(own.max()) + 1
    if parts < 2 or len(np.unique(truth[own == parts - 1])) < len(names):
        raise EvalError("tenants", "each needs as many pseudonyms as the others, and two", "heddle lab tenants")
    told = np.empty(len(some), int)
    falls = np.zeros(len(np.unique(things)))
    for part in range(parts):
        mine = own == part
        forest = RandomForestClassifier(trees, random_state=seed).fit(values[~mine], truth[~mine])
        told[mine] = forest.predict(values[mine])
        falls += _falls(forest, values[mine], truth[mine], things, seed) * mine.mean()
    right = told == truth
    pseudonyms = np.unique([c.pseudonym for c in some], return_inverse=True)[1]
    accuracy = bootstrap.intervals(lambda w: {"accuracy": w @ right / w.sum(1)}, pseudonyms, truth)["accuracy"]
    table = metrics.confusion(truth, told, np.arange(len(names)))
    order = [i for i in np.argsort(-falls)[:most] if falls[i] > 0]
    return {
        "connections": len(some),
        "accuracy": accuracy,
        "recall": {n: float(table[i, i] / table[i].sum()) for i, n in enumerate(names)},
        "telling": [{"name": str(np.unique(things)[i]), "falls": float(falls[i])} for i in order],
    }


def _numbers(some: Sequence[Connection]) -> NDArray[np.int64]:
    """(N,) number of each connection's pseudonym among those of its tenant."""
    of: dict[str, dict[str, int]] = {}
    return np.array([of.setdefault(c.tenant, {}).setdefault(c.pseudonym, len(of[c.tenant])) for c in some])


def _falls(
    forest: RandomForestClassifier,
    values: NDArray[np.float64],
    truth: NDArray[np.int_],
    things: NDArray[np.str_],
    seed: int,
) -> NDArray[np.float64]:
    """By how much accuracy falls without each thing, in the order of their names. A word has several columns."""
    rng, right = np.random.default_rng(seed), forest.predict(values) == truth
    each = [np.flatnonzero(things == thing) for thing in np.unique(things)]
    copies = np.tile(values, (len(each) * REPEATS, 1)).reshape(len(each), REPEATS, *values.shape)
    for i, columns in enumerate(each):
        for copy in copies[i]:
            copy[:, columns] = values[rng.permutation(len(values))][:, columns]
    told = forest.predict(copies.reshape(-1, values.shape[1]))  # in one call: of few rows it takes most of the time
    return right.mean() - (told.reshape(len(each), -1, len(values)) == truth).mean((1, 2))


def cells(answer: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Give the head and the rows of a table."""
    rows = [
        [
            row["way"],
            row["kind"],
            ", ".join(f"{t['name'].partition(': ')[2]} ({t['falls']:.2f})" for t in row["telling"]) or "-",
            report.interval(row["accuracy"]),
            str(row["connections"]),
        ]
        for row in answer["rows"]
    ]
    return ["way", "kind", "telling", "accuracy", "connections"], rows


def remarks(answer: dict[str, Any]) -> list[str]:
    """Give the lines below the table."""
    return [
        f"Accuracy for {len(answer['tenants'])} tenants ({', '.join(answer['tenants'])}), of which chance names"
        f" {answer['chance']:.3f}; a random forest of {answer['trees']} trees that has seen other pseudonyms of them."
        " Brackets: 95 % intervals by bootstrap over pseudonyms.",
        "Telling: what accuracy falls without, and by how much, where it is shuffled among connections.",
    ]


def text(answer: dict[str, Any]) -> str:
    """Write the table as plain text."""
    return report.plain(*cells(answer), left=3, group=1) + "\n" + "\n".join(remarks(answer)) + "\n"


def markdown(answer: dict[str, Any]) -> str:
    """Write the table as Markdown."""
    return report.marked(*cells(answer), left=3) + "\n" + "\n".join(f"- {r}" for r in remarks(answer)) + "\n"
