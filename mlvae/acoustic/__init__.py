"""Acoustic models of other people: how they are read, and what their outputs are in our units.

:class:`mlvae.acoustic.models.AcousticModel` is what a model has to be, and each format has a
class beside it. :mod:`mlvae.acoustic.symbols` maps symbols to units, and
:mod:`mlvae.acoustic.posteriors` brings both together for the cuts of a recipe.
"""
