"""Verbs over data sets."""
