"""L2-ARCTIC: its tree, its annotation, and what is true of each canonical unit.

:mod:`.build` is stage 0. :mod:`.corpus` finds and reads the files (:mod:`.textgrid`,
:mod:`.labels`, :mod:`.phones`), and :mod:`.truth` says what was said of each unit; :mod:`.options`
are the recipe's.
"""
