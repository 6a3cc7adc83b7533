"""What an error says, in one line: messages of other libraries have several, or none."""

from __future__ import annotations


def one_line(error: object, most: int | None = None) -> str:
    """An error's message, or a text, in one line; of an error that says nothing its type.

    Args:
        error: our own messages are whole: what they name may be long, and the reason comes last.
        most: characters that count, of messages of other libraries.
    """
    return " ".join(str(error).split())[:most] or type(error).__name__


def system_reason(error: BaseException) -> str:
    """The same; of an error of the operating system its reason, without number and file."""
    return getattr(error, "strerror", None) or one_line(error)


def with_type(error: Exception) -> str:
    """The type of an error that nobody has foreseen, and its message, in one line."""
    return f"{type(error).__name__}: {one_line(error, most=400)}"
