"""Corpora: a folder each, or a file. Nothing outside of this folder imports them but recipes."""
