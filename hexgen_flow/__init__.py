"""The front door: the client library, the command line and the demo."""
