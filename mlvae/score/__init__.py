"""Scoring: from the tiers of an experiment and the truth of a corpus to a table."""
