"""Views of a hypothesis for people: TextGrid files and a picture."""
