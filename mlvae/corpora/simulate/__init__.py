"""A tree in the layout of L2-ARCTIC, spoken by espeak-ng with errors as they were counted there.

:mod:`.build` writes it: :mod:`.plan` says who reads what with which :mod:`.errors`,
:mod:`.phones` and :mod:`.voice` speak it, :mod:`.times` reads what was spoken when, and
:mod:`.tiers` writes the annotation.
"""
