"""Runs: claims requests, runs the engine or the tool, reports completions."""
