"""One short loop per file: read from the store, ask the core, write to the store."""
