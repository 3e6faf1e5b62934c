"""Tool stages, run by RQ."""
