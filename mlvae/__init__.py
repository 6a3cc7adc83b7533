"""Mismatch localisation between speech and text with k2, without human annotation."""

__version__ = "0.1.0"
