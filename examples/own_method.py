"""Compare a custom method with FedAvg and FedCAP under every attack: python examples/own_method.py"""

import sys
from dataclasses import dataclass

import fedcap
from fedcap.methods.fedavg import FedAvg


@dataclass(frozen=True)
class Cautious(FedAvg):
    """FedAvg whose server takes a part of each step."""

    step: float = 0.5

    def update(self, state, sent, view, verdict):
        """Move the global model by a part of FedAvg's step."""
        moved = super().update(state, sent, view, verdict)
        return state.moved(self.step * (moved.model - state.model))


if __name__ == "__main__":  # workers import this file as own_method
    grid = fedcap.Grid(methods=["own_method:Cautious", "fedavg", "fedcap"], attacks="all", seeds="0-2")
    compared = grid.run(out=sys.argv[1] if len(sys.argv) > 1 else "own-method")
    print(compared.markdown())
