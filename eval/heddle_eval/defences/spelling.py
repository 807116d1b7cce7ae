"""Defences as text: ``name:preset,key=value``, there and back."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from heddle_eval.errors import EvalError


def option(default: Any, about: str) -> Any:
    """Make a dataclass field with a line for the reader."""
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Spelled:
    """A defence that can be written down. Its fields are the keys, with ``-`` for ``_``.

    Attributes
    ----------
    name
        What it is called.
    claim
        What it hides and what it does not, in a line.
    source
        The paper that it is from.
    presets
        Published settings by name; the first is the default.

    """

    name: ClassVar[str]
    claim: ClassVar[str] = "does not say what it hides"
    source: ClassVar[str] = "your own"
    presets: ClassVar[dict[str, dict[str, Any]]] = {}

    @classmethod
    def spelled(cls, arguments: str) -> Self:
        """Make one of ``preset,key=value,...``; each part may be missing."""
        values: dict[str, Any] = {}
        for at, part in enumerate(p.strip() for p in arguments.split(",") if p.strip()):
            key, equals, value = part.partition("=")
            if equals:
                values[cls._key(key.strip())] = cls._value(key.strip(), value.strip())
            elif at == 0 and part in cls.presets:
                values |= cls.presets[part]
            else:
                raise EvalError(cls.name, f"{part!r} is no setting of it", cls._hint())
        return cls(**values)

    @classmethod
    def _key(cls, key: str) -> str:
        known = {f.name.replace("_", "-"): f.name for f in fields(cls)}
        if key not in known:
            raise EvalError(cls.name, f"it has no setting {key!r}", cls._hint())
        return known[key]

    @classmethod
    def _value(cls, key: str, text: str) -> Any:
        kind = typing.get_type_hints(cls)[cls._key(key)]
        try:
            if kind is bool:
                return {"yes": True, "no": False}[text]
            if typing.get_origin(kind) is tuple:
                return tuple(typing.get_args(kind)[0](v) for v in text.split("/"))
            if typing.get_origin(kind) is typing.Literal:
                return {c: c for c in typing.get_args(kind)}[text]
            return kind(text)
        except (KeyError, ValueError):
            raise EvalError(f"{cls.name}:{key}", f"{text!r} is not {_kind(kind)}", cls._hint()) from None

    @classmethod
    def _hint(cls) -> str:
        presets = f"{cls.name}:{'|'.join(cls.presets)}; " if cls.presets else ""
        settings = ", ".join(f"{f.name.replace('_', '-')}={_shown(f.default) or '...'}" for f in fields(cls))
        return f"{presets}settings with their defaults: {settings}"

    @classmethod
    def settings(cls) -> list[dict[str, str]]:
        """List its settings: key, default and what it is."""
        kinds = typing.get_type_hints(cls)
        return [
            {
                "key": f.name.replace("_", "-"),
                "kind": _kind(kinds[f.name]),
                "default": _shown(f.default),
                "about": f.metadata["about"],
            }
            for f in fields(cls)
        ]

    def __str__(self) -> str:
        mine = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {f.name: f.default for f in fields(self)}
        # The preset that leaves the least to say; the first one where several do.
        preset, rest = min(
            ((p, {k: v for k, v in mine.items() if (plain | s)[k] != v}) for p, s in self._all()),
            key=lambda c: len(c[1]),
        )
        keys = [f"{k.replace('_', '-')}={_shown(v)}" for k, v in rest.items()]
        words = ",".join([*([preset] if preset else []), *keys])
        # What is MODULE:CLASS has its colon already.
        return f"{self.name}{',' if ':' in self.name else ':'}{words}" if words else self.name

    def _all(self) -> list[tuple[str, dict[str, Any]]]:
        return list(self.presets.items()) or [("", {})]

    def describe(self) -> str:
        """Say in a line what it is, as set, and what it hides."""
        return f"{self}: {self.claim} ({self.source})"

    def check(self, holds: bool, key: str, why: str) -> None:
        """Refuse a setting that makes no sense."""
        if not holds:
            raise EvalError(f"{self.name}:{key.replace('_', '-')}", f"{getattr(self, key)!r}: {why}", self._hint())


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "/".join(map(_shown, value)) if isinstance(value, tuple) else str(value)


def _kind(kind: Any) -> str:
    if kind is bool:
        return "yes or no"
    if typing.get_origin(kind) is tuple:
        return "numbers with / between"
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(typing.get_args(kind))
    return {int: "a whole number", float: "a number", str: "text"}[kind]
