"""The gradient of a plain network by hand: no tape, no allocation, matrix products and little else.

A chain is an `nn.Sequential` of convolutions, max pools, ReLUs, flattenings and linear layers, which is what
most federated learning trains. Its batches are so small that autograd's tape costs as much as the arithmetic.
"""

from fedcap.training.fast_gradient import Chain, Place, chain_of

__all__ = ["Chain", "Place", "chain_of"]
