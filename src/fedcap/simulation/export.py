"""Models as files that are used without fedcap: weights (.safetensors), or a whole program (.pt2).

The program is made by `torch.export`: raw inputs in, n×…, probabilities out, n×classes, for any n.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from typing import Any

import torch
from safetensors.torch import save

from fedcap.data.encoding import categories
from fedcap.errors import InputError
from fedcap.simulation.inputs import Predictor
from fedcap.simulation.models import TrainedModels

SUFFIXES = (".safetensors", ".pt2")
ABOUT = "about"
"""The name of a model's description: an entry of the weights' metadata, a .json file in a program."""


def exported(
    models: TrainedModels, run: str, client: str | None, reading: str, suffix: str
) -> tuple[bytes, dict[str, Any]]:
    """Return a model as the content of a file with this suffix, and the model's description.

    `run` is the digest of the model's run.
    """
    if suffix not in SUFFIXES:
        raise InputError(
            f"the file of a model should end in {' or in '.join(SUFFIXES)}: weights, or a whole program",
            code="bad-value",
            field="out",
        )
    predictor = models.predictor(client, reading)
    preparation = predictor.preparation
    about: dict[str, Any] = {
        "client": client,
        "reading": reading,
        "classes": list(models.inputs.class_names),
        "shape": list(preparation.raw_shape),
        "dtype": preparation.dtype,
        "run": run,
    }
    if preparation.features:
        about["features"] = list(preparation.features)
    if preparation.encoding is not None:
        about["levels"] = categories(preparation.features, preparation.encoding.levels)
    if suffix == ".pt2":
        return _program(predictor, about), about
    if preparation.encoding is not None:
        about["medians"] = preparation.encoding.medians.tolist()
    if preparation.scaling is not None:
        about["mean"] = preparation.scaling.mean.tolist()
        about["deviation"] = preparation.scaling.deviation.tolist()
    return _weights_to_export(predictor, about), about


def _weights_to_export(predictor: Predictor, about: Mapping[str, Any]) -> bytes:
    """Return the model's state dict, with the module's own names, as safetensors."""
    state = {name: tensor.clone() for name, tensor in predictor.model.state_dict().items()}
    return save(state, metadata={ABOUT: json.dumps(about)})


def _program(predictor: Predictor, about: Mapping[str, Any]) -> bytes:
    """Return preparation, model and softmax as one program that takes any number of inputs."""
    preparation = predictor.preparation
    predictor.requires_grad_(False)
    example = torch.zeros(2, *preparation.raw_shape, dtype=getattr(torch, preparation.dtype))
    try:
        with torch.no_grad(), _quietly():
            batch = torch.export.Dim("batch", min=1)
            program = torch.export.export(predictor, (example,), dynamic_shapes={"x": {0: batch}})
    except Exception as error:  # code of the user's own network that cannot be traced
        first = str(error).strip().partition("\n")[0]
        raise InputError(
            f"the network cannot be made a program ({type(error).__name__}: {first}): export its"
            " weights instead",
            code="not-exportable",
        ) from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it has paths of this machine
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={f"{ABOUT}.json": json.dumps(about)})
    return file.getvalue()


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep torch from printing the graph of a network that it could not trace."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
