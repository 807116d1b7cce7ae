"""What tells pages apart: the field's attacks, as scikit-learn classifiers over traces. Start at :func:`make`."""

from __future__ import annotations

import math
from importlib import import_module
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from heddle_eval import plugins
from heddle_eval.attacks.base import Attack
from heddle_eval.errors import EvalError

__all__ = ["PRESETS", "Attack", "about", "make", "names"]

PRESETS = ("laptop", "paper")
"""``paper`` is as published; ``laptop`` has networks of half the width that take 1000 values and learn for few epochs,
or grows fewer trees."""


class _Entry(NamedTuple):
    about: str
    module: str
    kind: str
    common: dict[str, Any] = {}  # noqa: RUF012 - never changed
    laptop: dict[str, Any] = {}  # noqa: RUF012


_BRIEF = {"patience": 8, "least": 2000}
_SMALL = {"length": 1000, "width": 0.5, "least": 2000}
# On hundreds of visits of each page instead of a thousand, small batches make as many steps as the published training.
_STEEP = {"tail": 0.2, "batch": 32, "epochs": 18, "falls": True, "validation": 0.05, "least": 2000}

_ENTRIES = {
    "df": _Entry(
        "Deep Fingerprinting: a convolutional network on directions or sizes (CCS 2018)",
        "deep",
        "DF",
        laptop=_SMALL | _STEEP,
    ),
    "tik-tok": _Entry(
        "Tik-Tok: the network of DF on direction x time (PETS 2020)", "deep", "TikTok", laptop=_SMALL | _BRIEF
    ),
    "p1-fp": _Entry("p1-FP(C): a shallow convolutional network (PETS 2019)", "deep", "P1FP", laptop=_SMALL | _BRIEF),
    "var-cnn": _Entry(
        "Var-CNN: dilated residual networks on packets and on gaps, with metadata, averaged (PETS 2019)",
        "deep",
        "VarCNNEnsemble",
        laptop=_SMALL | {"epochs": 40},
    ),
    "var-cnn-packets": _Entry(
        "the network of Var-CNN on packets, with metadata", "deep", "VarCNN", laptop=_SMALL | {"epochs": 40}
    ),
    "var-cnn-time": _Entry(
        "the network of Var-CNN on gaps between packets, with metadata",
        "deep",
        "VarCNN",
        {"parts": "gap+metadata"},
        _SMALL | {"epochs": 40},
    ),
    "rf": _Entry(
        "Robust Fingerprinting: a convolutional network on packets per time slot (USENIX Security 2023)",
        "deep",
        "RF",
        laptop={"width": 0.5} | _BRIEF,
    ),
    "k-fp": _Entry(
        "k-fingerprinting: a random forest on hand-made features (USENIX Security 2016)",
        "kfp",
        "KFingerprinting",
        laptop={"trees": 150},
    ),
    "k-fp-knn": _Entry(
        "k-fingerprinting: the nearest neighbours by the leaves of that forest",
        "kfp",
        "KFingerprinting",
        {"neighbours": 6},
        {"trees": 150},
    ),
    "cumul": _Entry("CUMUL: a support vector machine on the curve of cumulated sizes (NDSS 2016)", "cumul", "Cumul"),
    "site-bayes": _Entry(
        "StegoTorus' site classifier: naive Bayes on cumulative bytes (CCS 2012)", "site_bayes", "SiteBayes"
    ),
    "tor-detector": _Entry(
        "StegoTorus' detector of Tor: packets that carry as much as a cell (CCS 2012); --world detect",
        "tor_detector",
        "TorDetector",
    ),
    "fully-encrypted": _Entry(
        "the Great Firewall's rule for fully encrypted traffic (USENIX Security 2023); --world detect",
        "fully_encrypted",
        "FullyEncrypted",
    ),
    "byte-statistics": _Entry(
        "naive Bayes on entropy and printable share of the first packets (after CCS 2015)",
        "byte_statistics",
        "ByteStatistics",
    ),
    "ja3": _Entry(
        "JA3 fingerprints of TLS clients (2017); --world detect", "client_hello", "ClientHello", {"kind": "ja3"}
    ),
    "ja4": _Entry("JA4 fingerprints of TLS clients (2023); --world detect", "client_hello", "ClientHello"),
    "header-order": _Entry(
        "the order of header names in the first HTTP request (p0f, 2012); --world detect", "http_headers", "HeaderOrder"
    ),
    "tls-in-tls": _Entry(
        "TLS handshakes inside encrypted connections, by sizes and directions (USENIX Security 2024); --world detect",
        "tls_in_tls",
        "TLSInTLS",
    ),
    "cross-layer-rtt": _Entry(
        "answers that take longer than acknowledgements, as behind a proxy (NDSS 2025); --world detect",
        "cross_layer_rtt",
        "CrossLayerRTT",
    ),
    "flow-forest": _Entry(
        "a random forest on features of a flow, which can name those that tell (after CCS 2015)",
        "flow_forest",
        "FlowForest",
    ),
}


_LEAST = {
    **dict.fromkeys(("epochs", "patience", "batch", "length", "trees", "points", "landmarks", "packets"), 1),
    **dict.fromkeys(("grams", "bursts", "pairs"), 1),
    **dict.fromkeys(("least", "neighbours", "seed", "cell", "overhead", "inflated"), 0),
    "folds": 2,
    "slots": 78,  # fewer leave the last layers of RF nothing
}
_ABOVE_0 = ("width", "learning_rate", "window", "C", "gamma", "steepness", "smoothing", "slack", "jitter", "longest")
_SHARES = ("validation", "tail", "weight", "threshold")


def names() -> list[str]:
    """Name the attacks there are."""
    return list(_ENTRIES)


def about(name: str) -> str:
    """Say in a line what an attack is."""
    return _entry(name).about


def make(name: str, preset: str = "laptop", seed: int = 0, **overrides: Any) -> Attack:
    """Make an attack that is yet to learn.

    Parameters
    ----------
    name
        One of :func:`names`, or MODULE:CLASS of a scikit-learn classifier over traces.
    preset
        One of :data:`PRESETS`; nothing to MODULE:CLASS.
    seed
        Of all that is drawn in training.
    overrides
        Parameters of its own, which its class explains.

    Raises
    ------
    EvalError
        Where there is no such attack, preset or parameter, and it says which there are; and for a value that makes no
        sense.

    """
    if preset not in PRESETS:
        raise EvalError("attack", f"there is no preset {preset!r}", f"choose from {', '.join(PRESETS)}")
    if plugins.is_own(name):
        return _own(name, seed, overrides)
    entry = _entry(name)
    kind = getattr(import_module(f"heddle_eval.attacks.{entry.module}"), entry.kind)
    known = kind().get_params()
    if unknown := sorted(set(overrides) - set(known)):
        raise EvalError(f"attack {name}", f"it has no parameter {unknown[0]!r}", f"it has {', '.join(known)}")
    hints = get_type_hints(kind)
    for key, value in overrides.items():
        if why := _wrong(key, value, hints[key]):
            raise EvalError(f"attack {name}", f"{key} is {value!r}: {why}", "heddle-eval attacks shows its values")
    return kind(**(entry.common | (entry.laptop if preset == "laptop" else {}) | {"seed": seed} | overrides))


def _own(name: str, seed: int, overrides: dict[str, Any]) -> Attack:
    """Make an attack of the user's own; it gets the seed if it has such a parameter."""
    kind = plugins.load(name, "attack", ("fit", "predict_proba", "get_params"))
    try:
        made = kind(**overrides)
        return made.set_params(seed=seed) if "seed" in made.get_params() and "seed" not in overrides else made
    except TypeError as e:
        raise EvalError(f"attack {name}", f"it cannot be made: {e}", "--set gives the parameters of its class") from e


def _wrong(key: str, value: Any, kind: Any) -> str:
    """Say what a parameter must be, where it is not; empty where it is."""
    if get_origin(kind) is Literal:
        return "" if value in get_args(kind) else f"it is {' or '.join(get_args(kind))}"
    kinds = [k for k in get_args(kind) or (kind,) if k in (int, float, str, bool, NoneType)]
    fits = type(value) in kinds or (type(value) is int and float in kinds) or callable(value)
    if not fits:
        words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", NoneType: "none"}
        return f"it is {' or '.join(words[k] for k in kinds)}"
    if value is None:
        return ""
    if key in _LEAST and value < _LEAST[key]:
        return f"it is at least {_LEAST[key]}"
    if key in _ABOVE_0 and not 0 < value < math.inf:
        return "it is above 0"
    if key in _SHARES and not 0 <= value < 1:
        return "that is no share, which is from 0 to less than 1"
    return "it is not 0" if key == "jobs" and value == 0 else ""


def _entry(name: str) -> _Entry:
    if name not in _ENTRIES:
        raise EvalError("attack", f"there is none called {name!r}", f"choose from {', '.join(_ENTRIES)}")
    return _ENTRIES[name]
