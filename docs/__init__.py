"""The documentation site: `python -m docs` gathers its pages and builds it."""
