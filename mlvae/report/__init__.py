"""Views of tiers and results: TextGrid files and plots."""
