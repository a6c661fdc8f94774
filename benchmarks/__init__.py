"""What things cost: `python -m benchmarks [NAME …]` measures and writes into benchmarks/results.

Every benchmark sets the number of its threads itself and says it in its table. `python -m benchmarks.against
REV` compares the speed of this tree with that of another revision. `python -m benchmarks.same_bits OLD NEW`
compares the results of two trees, bit by bit.
"""
