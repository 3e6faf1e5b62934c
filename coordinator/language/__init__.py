"""The workflow language: grammar, compiler, templates and library."""
