"""Which page load a file is of, by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from heddle_eval.errors import EvalError

FIELDS = ("page", "visit", "path")


@dataclass(frozen=True)
class Source:
    """One input file; ``parts`` is its way from the folder that was named, which is all that patterns look at."""

    file: Path
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Name:
    """What a file's name says; ``visit`` and ``path`` are None where it says nothing of them."""

    page: str
    visit: str | None
    path: str | None


def natural(text: str) -> list[tuple[int, int, str]]:
    """Sort key that puts 2 before 10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", text)]


def files(inputs: Sequence[str | Path]) -> list[Source]:
    """List the files that are named, and those below the folders that are, in natural order; hidden ones are not."""
    found: list[Source] = []
    for given in map(Path, inputs):
        if given.is_dir():
            below = [f for f in given.rglob("*") if f.is_file() and not _hidden(f.relative_to(given))]
            below.sort(key=lambda f: natural(str(f.relative_to(given))))
            if not below:
                raise EvalError(str(given), "the folder holds no file")
            found += [Source(f, f.relative_to(given).parts) for f in below]
        elif given.is_file():
            found.append(Source(given, (given.name,)))
        else:
            raise EvalError(str(given), "there is no such file or folder")
    return found


def _hidden(relative: Path) -> bool:
    return any(part.startswith(".") for part in relative.parts)


def read(sources: Sequence[Source], pattern: str) -> list[Name]:
    """Say of each file what it is.

    ``{page}``, ``{visit}`` and ``{path}`` in the pattern each stand for some text without ``/``, and ``*`` for any; a
    field that is there twice is joined by ``-``. A pattern without ``/`` looks at the file's name only. Visits are
    taken for numbers where that fits all files, so that a page's own name may hold the text between the fields.

    Without a pattern folders decide: ``page/visit/path.pcapng``, ``page/visit.pcapng`` or ``page.pcapng``.
    """
    if not pattern:
        return [_by_folder(s.parts) for s in sources]
    strict, loose = (_compile(pattern, visit) for visit in (r"\d+", r"[^/]+"))
    last = "/" not in pattern
    texts = [s.parts[-1] if last else "/".join(s.parts) for s in sources]
    for expression in (strict, loose):
        matches = [expression.fullmatch(t) for t in texts]
        if all(matches):
            return [_name(m) for m in matches if m]
    odd = next(t for t, m in zip(texts, matches, strict=True) if not m)
    raise EvalError(odd, f"the name does not fit --label {pattern}", "name only files that fit, or change the pattern")


def _compile(pattern: str, visit: str) -> re.Pattern[str]:
    expression, seen = "", dict.fromkeys(FIELDS, 0)
    for part in re.split(r"(\{[^{}]*\}|\*)", pattern):
        if part == "*":
            expression += "[^/]*"
        elif part.startswith("{"):
            name = part[1:-1]
            if name not in seen:
                raise EvalError(
                    f"--label {pattern}", f"there is no field {part}", "fields are {page}, {visit} and {path}"
                )
            expression += f"(?P<{name}{seen[name]}>{visit if name == 'visit' else '[^/]+'})"
            seen[name] += 1
        else:
            expression += re.escape(part)
    if not seen["page"]:
        raise EvalError(f"--label {pattern}", "it has no {page}, so that no trace has a class")
    return re.compile(expression)


def _name(match: re.Match[str]) -> Name:
    fields: dict[str, list[str]] = {}
    for group, text in match.groupdict().items():
        fields.setdefault(group.rstrip("0123456789"), []).append(text)
    page, visit, path = (("-".join(fields[f]) if f in fields else None) for f in FIELDS)
    return Name(page or "", visit, path)


def _by_folder(parts: tuple[str, ...]) -> Name:
    stem = Path(parts[-1]).stem
    if len(parts) == 1:
        return Name(stem, None, None)
    if len(parts) == 2:
        return Name(parts[0], stem, None)
    return Name("/".join(parts[:-2]), parts[-2], stem)


def distinct(names: Iterable[Name], sources: Sequence[Source]) -> None:
    """Refuse two files that are the same path of the same visit."""
    seen: dict[Name, Source] = {}
    for name, source in zip(names, sources, strict=True):
        if name.visit is None:
            continue
        if name in seen:
            raise EvalError(
                str(source.file),
                f"{seen[name].file.name} is the same visit of {name.page} too",
                "give --label a pattern that tells them apart, with {visit} and {path}",
            )
        seen[name] = source
