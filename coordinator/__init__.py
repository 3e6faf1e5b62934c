"""Decides: turns submissions and completions into dispatched requests."""
