"""Manifests, audio, features, texts and lexicons, unit tables and training batches."""
