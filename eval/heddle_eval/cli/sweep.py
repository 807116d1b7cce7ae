"""Verbs of sweeps."""
