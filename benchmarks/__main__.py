"""Run the named benchmarks, or all of them."""

import importlib
import sys

NAMES = ("rules", "server", "rounds", "parts", "grid", "ray", "federation", "page", "scale")

if unknown := [name for name in sys.argv[1:] if name not in NAMES]:
    sys.exit(f"no benchmark {unknown[0]!r} (known: {', '.join(NAMES)})")
for name in sys.argv[1:] or NAMES:
    importlib.import_module(f"benchmarks.{name}").main()
