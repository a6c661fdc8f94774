"""How an option of a method names a rule, a detector or a policy: by name, by table, or as an object."""

from __future__ import annotations

from typing import Any

from pydantic import InstanceOf

from fedcap.aggregators import Aggregator
from fedcap.detection import Detector, Policy

Choice = (
    str
    | dict[str, Any]
    | InstanceOf[Aggregator]
    | InstanceOf[Detector]
    | InstanceOf[Policy]
    | InstanceOf[type[Any]]
)
"""A thing's name, a table of its name and options, an object, or a class."""
