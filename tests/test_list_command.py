"""`fedcap list`: everything that has a name is listed, and explained with each of its options."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from helpers import call, refused

import fedcap
from fedcap.cli.common import parse_setting
from fedcap.cli.list import explanations, registries
from fedcap.runs import overlay

EVERYTHING = [(registry, name) for registry in registries().values() for name in registry.names()]


@pytest.mark.parametrize(("registry", "name"), EVERYTHING, ids=lambda part: getattr(part, "kind", part))
def test_every_name_has_a_description_options_and_a_command_that_fits(registry: object, name: str) -> None:
    (found,) = [one for one in explanations(name) if one.kind == registry.kind]  # type: ignore[attr-defined]
    assert len(found.about) > 40
    assert found.summary
    known = registry.options(name)  # type: ignore[attr-defined]
    assert sorted(option.name for option in found.options) == sorted(known)
    for option in found.options:
        assert option.line, option.name
        assert option.type, option.name
        assert option.default, option.name
    own = {"arrays": "(x, y)", "csv": "FILE.csv", "npz": "FILE.npz", "folder": "FOLDER"}
    if found.kind == "data set" and name in own:
        assert own[name] in found.use
        return
    words = found.use.split()
    assert words[:2] == ["fedcap", "run"]
    given: dict[str, object] = {}
    for flag, value in zip(words[2::2], words[3::2], strict=True):
        key = {"--rule": "method.rule"}.get(flag, flag.removeprefix("--"))
        given = overlay(given, parse_setting(value if flag == "--set" else f"{key}={value}"))
    if found.kind == "tracker" and name != "csv" and importlib.util.find_spec(name) is None:
        with refused("needs-extra"):
            fedcap.Experiment(**given)
        return
    fedcap.Experiment(**given)


def test_an_option_has_its_type_its_default_and_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "list", "fedcap", "--json")
    assert code == 0
    (found,) = json.loads(out)
    options = {option["name"]: option for option in found["options"]}
    assert options["alpha"]["type"] == 'number ≥ 0 and ≤ 10000 or "auto"'
    assert options["alpha"]["default"] == "10.0"
    assert "mixing weights (Eq. 5)" in options["alpha"]["line"]
    assert options["similarity"]["type"] == '"all" or "last-layer"'
    assert options["customise"]["type"] == "true or false"
    assert options["customise"]["default"] == "true"
    assert options["t_norm"]["type"] == "number > 0"
    assert options["detectors"]["line"].startswith("Detectors of malicious clients")
    assert "ACSAC 2024" in found["about"]


def test_lines_of_bases_are_found_and_those_of_a_subclass_win() -> None:
    (ditto,) = explanations("ditto")
    lines = {option.name: option.line for option in ditto.options}
    assert lines["rule"].startswith("How updates are aggregated")
    assert lines["lambda_"] == "How strongly the personal model is pulled towards the global one."


def test_aliases_and_other_spellings_are_the_same_thing(capsys: pytest.CaptureFixture[str]) -> None:
    listed = call(capsys, "list", "min-max")
    assert listed == call(capsys, "list", "minmax") == call(capsys, "list", "MIN_MAX")
    code, out, _ = listed
    assert code == 0
    assert "min-max · attack · also minmax" in out
    assert "fedcap run --attack min-max" in out


def test_ones_own_class_is_explained_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_noise.py").write_text(
        '"""Noise of a certain length, by hand."""\n\n'
        "from dataclasses import dataclass\n\nfrom fedcap.attacks import Attack\n\n\n"
        '@dataclass(frozen=True)\nclass Noise(Attack):\n    """Send noise."""\n\n'
        '    scale: float = 2.0\n    """How long it is."""\n\n'
        "    def craft(self, view):\n        return view.updates[view.malicious]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    code, out, _ = call(capsys, "list", "my_noise:Noise")
    assert code == 0
    assert "Noise of a certain length" in out
    assert "scale (number; default 2.0)\n      How long it is." in out


def test_list_names_everything_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "list", "--json")
    assert code == 0
    found = json.loads(out)
    for registry, name in EVERYTHING:
        assert any(name in names for names in found.values()), (registry, name)
    assert all(len(line) > 20 for names in found.values() for line in names.values())
    code, out, _ = call(capsys, "list")
    for names in found.values():
        for name in names:
            assert f"  {name} " in out
    assert json.loads(call(capsys, "list", "attacks", "--json")[1]) == {"attacks": found["attacks"]}
