"""Views of an answer for people: TextGrid files and a picture."""
