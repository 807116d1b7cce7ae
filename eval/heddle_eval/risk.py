"""How well someone on each path could tell a user's own pages apart, with what limits that has."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle_eval.errors import EvalError
from heddle_eval.figures import save
from heddle_eval.metrics import confusion
from heddle_eval.traces import WHOLE, Traces

FOLDS = 10
JOINED = "all paths joined"

LIMITS = [
    "The observer is told that each visit is of one of these pages (a closed world). Someone who must also tell them"
    " from the rest of the web is wrong more often.",
    "The observer learns from your own captures: the same machine, network and days. Someone who must collect elsewhere"
    " and earlier does worse; pages change.",
    "The observer has few visits to learn from, and one attack. Someone who visits the pages thousands of times, with"
    " the attack that suits them best, does better.",
    "Only sizes, directions and times count here. Whoever can read names (DNS, TLS) or addresses has no need to guess;"
    " heddle observe report says what can be read.",
]


def assess(
    traces: Traces,
    paths: dict[str, int] | None = None,
    *,
    attack: str = "k-fp",
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Attack what each observer saw, and what all of them saw together.

    Each visit is told by an attack that has learnt from other visits: folds by page load, with each page in each fold.

    Parameters
    ----------
    traces
        Several visits of several pages, one trace for each path, or whole ones.
    paths
        Names of the paths, and their numbers.
    attack
        A name that :func:`heddle_eval.attacks.make` knows.
    seed
        Of the folds and of the attack.
    progress
        Called with how many folds are done, and how many there are.

    Returns
    -------
    dict
        ``observers``: for each its ``name``, ``seen`` (visits of which it saw a packet), ``right`` (how many of them it
        told), ``rate``, ``interval`` (95 %, Wilson), ``chance`` (the rate of always naming the page that it
        saw most often), ``verdict`` and ``pages``, each with its ``rate`` and what it is ``taken_for``.

    Raises
    ------
    EvalError
        Where there are no two pages with two visits each.

    """
    called = {number: name for name, number in (paths or {}).items()}
    views = _views(traces, called)
    kept = {name: _repeated(view) for name, view in views.items()}
    known = {name: view for name, view in kept.items() if len(np.unique(view.label)) >= 2}
    if not known:
        raise EvalError(
            "risk",
            "there are no two pages with two visits each",
            "visit each page several times, ten or more if you can",
        )
    folds = {name: min(FOLDS, int(np.unique(view.label, return_counts=True)[1].min())) for name, view in known.items()}
    done, total = 0, sum(folds.values())
    observers = []
    for name, view in known.items():
        told = np.empty(len(view), np.int64)
        for train, test in _parted(view, folds[name], seed):
            told[test] = _attack(attack, seed).fit(view[train], view.label[train]).predict(view[test])
            done += 1
            progress(done, total)
        observers.append(_observer(name, view, told, folds[name]))
    return {
        "attack": attack,
        "seed": seed,
        "pages": len(traces.names),
        "visits": len(np.unique(traces.load)),
        "observers": observers,
        "notes": _notes(traces, views, kept),
        "limits": LIMITS,
    }


def _views(traces: Traces, called: dict[int, str]) -> dict[str, Traces]:
    """Give what each observer saw: one trace for each visit of which it saw a packet."""
    from heddle_eval.defences.join import observe

    numbers = [int(p) for p in np.unique(traces.path)]
    if numbers == [WHOLE]:
        views = {"the only path": traces}
    elif WHOLE in numbers:
        raise EvalError("risk", "some visits were captured on each path, and some as a whole", "name one sort of them")
    else:
        views = {called.get(p, f"path {p}"): traces[traces.path == p] for p in numbers}
        if len(numbers) > 1:
            views[JOINED] = observe(traces, max(numbers) + 1, np.random.default_rng(0))
    return {name: view[view.lengths > 0] for name, view in views.items()}


def _repeated(view: Traces) -> Traces:
    """Leave out pages of one visit: nothing can be learnt of them that could be tested."""
    visits = np.bincount(view.label, minlength=len(view.names))
    return view[visits[view.label] >= 2]


def _parted(view: Traces, folds: int, seed: int) -> Any:
    from sklearn.model_selection import StratifiedGroupKFold

    cut = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    return cut.split(np.zeros(len(view)), view.label, view.load)


def _attack(name: str, seed: int) -> Any:
    from heddle_eval import attacks

    # A forest that a laptop trains in a second; with so few visits the published one tells no more.
    light: dict[str, Any] = {"forest": "extra", "trees": 200} if name == "k-fp" else {}
    return attacks.make(name, seed=seed, **light)


def _observer(name: str, view: Traces, told: NDArray[np.int64], folds: int) -> dict[str, Any]:
    pages = np.unique(view.label)
    matrix = confusion(view.label, told, pages)
    visits, n, hits = matrix.sum(1), len(view), int(matrix.trace())
    low, high = _wilson(hits, n)
    chance = float(visits.max() / n)
    names = [view.names[p] for p in pages]
    return {
        "name": name,
        "seen": n,
        "right": hits,
        "rate": hits / n,
        "interval": [low, high],
        "chance": chance,
        "verdict": _verdict(hits / n, low, chance),
        "folds": folds,
        "pages": [_page(names, i, row) for i, row in enumerate(matrix)],
    }


def _page(names: list[str], page: int, told: NDArray[np.int64]) -> dict[str, Any]:
    visits, right = int(told.sum()), int(told[page])
    wrong = told * (np.arange(len(told)) != page)
    most = int(wrong.argmax())
    return {
        "page": names[page],
        "visits": visits,
        "rate": right / visits,
        "taken_for": {"page": names[most], "times": int(wrong[most])} if wrong.any() else None,
    }


def _wilson(hits: int, n: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927)."""
    z = 1.959964
    middle, spread = hits + z * z / 2, z * np.sqrt(hits * (n - hits) / n + z * z / 4)
    return float((middle - spread) / (n + z * z)), float((middle + spread) / (n + z * z))


def _verdict(rate: float, low: float, chance: float) -> str:
    if low <= chance:
        return "these visits do not show that it can tell the pages apart"
    if rate >= 0.9:
        return "it knows nearly always which page you visit"
    if rate >= 0.5:
        return "it knows more often than not which page you visit"
    return "it guesses better than by chance, and is wrong more often than not"


def _notes(traces: Traces, views: dict[str, Traces], kept: dict[str, Traces]) -> list[str]:
    notes = []
    visits = len(np.unique(traces.load))
    for name, view in views.items():
        if left := visits - len(view):
            notes.append(f"{name}: saw nothing of {left} of {visits} visits; they do not count there")
        once = sorted(set(view.labels) - set(kept[name].labels))
        if once:
            notes.append(f"{name}: left out, as it saw one visit only: {', '.join(once)}")
    fewest = min(int(np.unique(v.label, return_counts=True)[1].min()) for v in kept.values() if len(v))
    if fewest < FOLDS:
        notes.append(f"some page has {fewest} visits only; with {FOLDS} or more of each the figures are worth more")
    return notes


def text(answer: dict[str, Any]) -> str:
    """Write the answer in words."""
    out = [f"{answer['visits']} visits of {answer['pages']} pages; the observer's attack is {answer['attack']}.", ""]
    for o in answer["observers"]:
        low, high = o["interval"]
        out += [
            f"{o['name']}: {o['verdict']}.",
            f"  right in {o['right']} of {o['seen']} visits: {o['rate']:.0%} ({low:.0%} to {high:.0%});"
            f" {o['chance']:.0%} by naming one page always",
        ]
        for p in sorted(o["pages"], key=lambda p: (p["rate"], p["page"])):
            taken = p["taken_for"]
            most = f", most often taken for {taken['page']} ({taken['times']}x)" if taken else ""
            out.append(f"    {p['page']:<32} {p['rate']:>4.0%} of {p['visits']} visits{most}")
        out.append("")
    out += [*answer["notes"], *([""] if answer["notes"] else []), "What this does not say:"]
    limits = (textwrap.fill(limit, 100, initial_indent="- ", subsequent_indent="  ") for limit in answer["limits"])
    return "\n".join([*out, *limits])


def draw(answer: dict[str, Any], file: str | Path) -> None:
    """Draw how often each observer is right, and about which page."""
    from matplotlib.figure import Figure

    observers = answer["observers"]
    pages = sorted({p["page"] for o in observers for p in o["pages"]})
    height = max(3.5, 1.8 + 0.3 * max(len(pages), 2 * len(observers)))
    figure = Figure(figsize=(12, height), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.2))
    figure.suptitle(
        f"Who can tell which of {len(pages)} pages you visit? ({answer['visits']} visits, {answer['attack']})"
    )
    _bars(left, observers)
    _table(right, observers, pages)
    figure.supxlabel(
        "A closed world, and an observer who learns from your own captures: see the limits in the text.", size=8
    )
    save(figure, file)


def _bars(ax: Any, observers: list[dict[str, Any]]) -> None:
    at = np.arange(len(observers))
    rate = np.array([o["rate"] for o in observers])
    low, high = np.array([o["interval"] for o in observers]).T
    ax.barh(at, 100 * rate, color="tab:blue", alpha=0.7)
    ax.errorbar(
        100 * rate, at, xerr=100 * np.array([rate - low, high - rate]).clip(0), fmt="none", ecolor="black", capsize=3
    )
    for i, o in enumerate(observers):
        ax.plot([100 * o["chance"]] * 2, [i - 0.4, i + 0.4], color="tab:red", label=None if i else "by chance")
    ax.set(xlim=(0, 100), xlabel="% of visits whose page it names (with 95 % interval)", yticks=at)
    ax.set_yticklabels([o["name"] for o in observers])
    ax.invert_yaxis()
    ax.legend(loc="lower right")


def _table(ax: Any, observers: list[dict[str, Any]], pages: list[str]) -> None:
    rates = np.full((len(pages), len(observers)), np.nan)
    for k, o in enumerate(observers):
        for p in o["pages"]:
            rates[pages.index(p["page"]), k] = 100 * p["rate"]
    ax.imshow(rates, vmin=0, vmax=100, cmap="Blues", aspect="auto")
    for (i, k), rate in np.ndenumerate(rates):
        if np.isfinite(rate) and len(pages) <= 40:
            ax.text(k, i, f"{rate:.0f}", ha="center", va="center", color="white" if rate > 60 else "black", size=8)
    ax.set(xticks=range(len(observers)), yticks=range(len(pages)), title="% of a page's visits that are known")
    ax.set_xticklabels([o["name"] for o in observers])
    ax.set_yticklabels(pages, size=8)
