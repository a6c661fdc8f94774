"""Unit files, container files, and every command in the docs; they are parsed, not run."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest
import typer

from fedcap.cli import app
from fedcap.federation.config import FEDERATION, Federation, Operator
from fedcap.federation.flower.nginx import configuration, find_nginx

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
DOCS = ROOT / "docs" / "DEPLOYMENT.md"


def parse(words: list[str]) -> click.Context:
    """Parse a command line as fedcap would, without running it; a mistake is an error."""
    command: click.Command = typer.main.get_command(app)
    context = click.Context(command)
    while isinstance(command, click.Group):
        assert words, "a group is no command"
        command = command.commands[words[0]]
        words = words[1:]
    with context:
        return command.make_context(command.name, list(words), resilient_parsing=False)


@pytest.mark.parametrize("name", ["fedcap-server.service", "fedcap-site.service"])
def test_unit_files_start_a_command_that_exists(name: str) -> None:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / name)
    assert unit.sections() == ["Unit", "Service", "Install"]
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert (Path(program).name, Path(program).is_absolute()) == ("fedcap", True)
    directory = Path(parse(words).params["directory"])
    assert directory.is_relative_to(unit["Service"]["ReadWritePaths"])
    assert unit["Service"]["Restart"] == "on-failure"
    assert unit["Service"]["RestartPreventExitStatus"] == "2"


def test_the_dockerfile_copies_existing_files_and_ends_with_a_command_of_fedcap() -> None:
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line and line[0] != "#"]
    steps = [line.split(maxsplit=1) for line in lines]
    known = {"FROM", "RUN", "COPY", "USER", "WORKDIR", "VOLUME", "EXPOSE", "ENTRYPOINT", "CMD"}
    assert {step for step, _ in steps} <= known
    assert steps[0][0] == "FROM"
    for step, rest in steps:
        if step == "COPY":
            assert all((ROOT / source).exists() for source in rest.split()[:-1])
    last = dict(steps)
    assert json.loads(last["ENTRYPOINT"]) == ["fedcap", "federate"]
    assert last["USER"] == "fedcap"


def test_compose_starts_commands_that_exist() -> None:
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(services) == {"server", "site"}
    for service in services.values():
        parse(["federate", *service["command"]])
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        assert any(volume.endswith(":/data") for volume in service["volumes"])
    assert services["server"]["ports"] == ["9443:9443"]


def test_the_nginx_example_is_what_fedcap_writes(tmp_path: Path) -> None:
    (tmp_path / FEDERATION).write_text(Federation(host="fl.example.org").text())
    written = configuration(Operator(tmp_path)).replace(str(tmp_path), "/var/lib/fedcap/operator")
    assert (DEPLOY / "nginx.conf").read_text() == written


@pytest.mark.skipif(find_nginx() is None, reason="needs nginx")
def test_nginx_accepts_the_example(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from fedcap.federation.keys import make_authority, make_certificate

    for name in ("nginx", "certificates"):
        (tmp_path / name).mkdir()
    make_authority(tmp_path / "certificates", "trial")
    make_certificate(tmp_path / "certificates", ["localhost"])
    text = (DEPLOY / "nginx.conf").read_text().replace("/var/lib/fedcap/operator", str(tmp_path))
    (tmp_path / "nginx.conf").write_text(text)
    command = [str(find_nginx()), "-t", "-p", str(tmp_path / "nginx"), "-c", str(tmp_path / "nginx.conf")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


COMMANDS = [
    *re.findall(r"^\$ fedcap (.*?)(?:  +#.*)?$", DOCS.read_text(), re.MULTILINE),
    *(words for words in re.findall(r"`fedcap ([^`]+)`", DOCS.read_text()) if len(words.split()) > 2),
]


@pytest.mark.parametrize("words", sorted(set(COMMANDS)))
def test_every_command_in_the_deployment_docs_exists(words: str) -> None:
    parse(shlex.split(words))


def test_the_docs_name_every_command_of_a_federation() -> None:
    group = typer.main.get_command(app).commands["federate"]  # type: ignore[attr-defined]
    text = DOCS.read_text()
    for name in group.commands:
        assert f"fedcap federate {name}" in text, name


def test_files_that_the_docs_name_exist() -> None:
    for name in re.findall(r"`(deploy/[\w.]+)`", DOCS.read_text()):
        assert (ROOT / name).exists()
