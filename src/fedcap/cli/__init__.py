"""The command line: it turns arguments into calls of the library, and prints what they return."""

from __future__ import annotations

from fedcap.cli.app import app, main

__all__ = ["app", "main"]
