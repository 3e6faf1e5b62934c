"""The one door to Redis."""
