"""speechocean762: English of Mandarin speakers with scores of five experts by phone.

Its authors publish it at https://www.openslr.org/101 and describe it in J. Zhang et al.,
"speechocean762: An Open-Source Non-native English Speech Corpus For Pronunciation Assessment",
Interspeech 2021.
"""
