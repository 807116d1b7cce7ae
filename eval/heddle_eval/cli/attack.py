"""Verbs of attacks."""
