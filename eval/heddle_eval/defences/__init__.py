"""What hides a page: splitting, padding and delay, each as published. Start at :func:`parse`."""

from heddle_eval.defences.base import Defence
from heddle_eval.defences.join import observe
from heddle_eval.defences.overhead import Overhead, overhead
from heddle_eval.defences.parse import DEFENCES, parse

__all__ = ["DEFENCES", "Defence", "Overhead", "observe", "overhead", "parse"]
