"""Verbs that print the papers' tables."""
