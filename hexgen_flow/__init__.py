"""The front door: the client library, the command line and the demo."""

from hexgen_flow.client import Client

__all__ = ["Client"]
