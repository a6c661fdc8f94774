"""CIFAR-10 (Krizhevsky, 2009): 60,000 colour images of 32×32 in ten classes, in six batches.

`source` is the data set, `batches` reads its files, `fetch` gets them.
"""

from fedcap.data.cifar10.source import Cifar10

__all__ = ["Cifar10"]
