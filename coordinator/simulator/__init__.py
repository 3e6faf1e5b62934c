"""Replays workflows under a manual clock, with the engine model and the policies that run live. Never touches Redis."""
