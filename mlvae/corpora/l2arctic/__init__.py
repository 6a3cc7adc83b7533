"""L2-ARCTIC: its tree, its annotation, and what is true of each canonical unit.

:mod:`.prepare` is stage 0. :mod:`.files` finds and reads the files (:mod:`.labels`,
:mod:`mlvae.data.textgrid`), and :mod:`.reference` has the perceived units (:mod:`.align`).
"""
