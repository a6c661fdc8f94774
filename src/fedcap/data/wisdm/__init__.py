"""WISDM v1.1 (Kwapisz, Weiss, Moore, 2010): phone accelerometers of 36 people in six activities, at 20 Hz.

`source` is the data set, `readings` reads its raw file.
"""

from fedcap.data.wisdm.source import Wisdm

__all__ = ["Wisdm"]
