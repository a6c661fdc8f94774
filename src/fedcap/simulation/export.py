"""Models as files that are used without fedcap: weights (.safetensors), or a whole program (.pt2, .onnx).

The program is made by `torch.export`: raw inputs in, n×…, probabilities out, n×classes, for any n. An ONNX
file has the same program for ONNX Runtime and other languages (extra `onnx`).
"""

from __future__ import annotations

import importlib
import io
import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from typing import Any

import torch
from safetensors.torch import save
from torch.export import ExportedProgram

from fedcap.data.encoding import categories
from fedcap.errors import InputError
from fedcap.simulation.inputs import Predictor
from fedcap.simulation.models import TrainedModels

SUFFIXES = (".safetensors", ".pt2", ".onnx")
ABOUT = "about"
"""The name of a model's description: an entry of the metadata, or a .json file in a .pt2 program."""
_OPERATION = re.compile(r"OpOverload\(op='([^']+)'")
"""The name of an operation in an error of the ONNX exporter."""


def exported(
    models: TrainedModels, run: str, client: str | None, reading: str, suffix: str
) -> tuple[bytes, dict[str, Any]]:
    """Return a model as the content of a file with this suffix, and the model's description.

    `run` is the digest of the model's run.
    """
    if suffix not in SUFFIXES:
        raise InputError(
            "the file of a model should end in .safetensors (weights), .pt2 or .onnx (a whole program)",
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
    if suffix == ".onnx":
        _require_onnx()
        return _onnx(_program(predictor), about), about
    if suffix == ".pt2":
        return _pt2(_program(predictor), about), about
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


def _program(predictor: Predictor) -> ExportedProgram:
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
    return program


def _pt2(program: ExportedProgram, about: Mapping[str, Any]) -> bytes:
    """Return a program as the content of a .pt2 file."""
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={f"{ABOUT}.json": json.dumps(about)})
    return file.getvalue()


def _require_onnx() -> None:
    """Refuse to export to ONNX if the exporter's packages are missing."""
    try:
        for name in ("onnx", "onnxscript"):
            importlib.import_module(name)
    except ImportError:
        raise InputError(
            "ONNX files need onnx and onnxscript: pip install 'fedcap[onnx]'",
            code="needs-extra",
            field="onnx",
        ) from None


def _onnx(program: ExportedProgram, about: Mapping[str, Any]) -> bytes:
    """Return a program as the content of an ONNX file: input `x`, output `probabilities`, both batch×…."""
    try:
        with _quietly():
            names = {"input_names": ["x"], "output_names": ["probabilities"]}
            converted = torch.onnx.export(program, dynamo=True, verbose=False, **names)  # type: ignore[arg-type]
    except Exception as error:
        raise InputError(
            f"the network has no ONNX form ({_first_cause(error)}): export it as .pt2 or .safetensors",
            code="not-exportable",
            field="onnx",
        ) from error
    assert converted is not None
    model: Any = converted.model_proto
    del model.graph.value_info[:]
    del model.graph.metadata_props[:]
    for part in (*model.graph.node, *model.graph.input, *model.graph.output, *model.graph.initializer):
        del part.metadata_props[:]  # it has paths of this machine
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    entry = model.metadata_props.add()
    entry.key, entry.value = ABOUT, json.dumps(about)
    return model.SerializeToString()  # type: ignore[no-any-return]


def _first_cause(error: BaseException) -> str:
    """Return the operation that the ONNX exporter does not know, or the first line of its first error."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip()
    found = _OPERATION.search(text)
    return (
        f"no operation for {found[1]}" if found else f"{type(error).__name__}: {text.partition(chr(10))[0]}"
    )


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
