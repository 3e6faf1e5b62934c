"""What a name may be that one side gives and another asks for: both hold to the same rule. Text only."""

import re

WORD = "1 to 128 letters, digits, -, _, . and :"
"""The rule of `is_word`, in words."""
MODEL = "1 to 256 printable characters, with no blanks around them"
"""The rule of `is_model`, in words."""
_word = re.compile(r"[A-Za-z0-9_.:-]{1,128}").fullmatch


def is_word(text: str) -> bool:
    """Whether this can be an instance's id or a label: part of keys, of lines and of commands."""
    return _word(text) is not None


def is_model(text: str) -> bool:
    """Whether this can be the name of a model."""
    return 0 < len(text) <= 256 and text.isprintable() and text == text.strip()
