"""Mismatch corpora of spoken digits: FSDD, AudioMNIST, and clips that espeak-ng speaks.

:mod:`.fsdd`, :mod:`.audiomnist` and :mod:`.espeak` (:mod:`.voice`) find or make single digits,
:mod:`.clips` checks and splits them, and :mod:`.mismatch` joins them to utterances.
"""
