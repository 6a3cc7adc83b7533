"""Corpora, the seeded builder of mismatch corpora, features, unit tables and training batches."""
