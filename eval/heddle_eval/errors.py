"""What goes wrong, said so that a person can mend it."""

from __future__ import annotations


class EvalError(Exception):
    """Bad input or an impossible wish.

    Parameters
    ----------
    what
        The thing that failed, such as a file or an option.
    why
        The reason.
    hint
        What to do about it; may be empty.

    """

    def __init__(self, what: str, why: str, hint: str = "") -> None:
        super().__init__(f"{what}: {why}")
        self.what, self.why, self.hint = what, why, hint

    def __reduce__(self) -> tuple[type[EvalError], tuple[str, str, str]]:
        """Let it come whole from another process."""
        return type(self), (self.what, self.why, self.hint)
