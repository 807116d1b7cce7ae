"""Verbs of defences."""
