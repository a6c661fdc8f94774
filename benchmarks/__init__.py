"""What things cost: `python -m benchmarks [NAME …]` measures and writes into benchmarks/results."""
