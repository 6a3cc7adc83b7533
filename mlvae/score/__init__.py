"""Scoring: from the tiers of an experiment and the reference of a corpus to a table."""
