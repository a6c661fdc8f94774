"""`fedcap federate` as an operator and a site use it, up to the moment when processes start."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from helpers import call

pytest.importorskip("flwr")

from fedcap.cli import app, main
from fedcap.federation.config import Operator, held
from fedcap.federation.plan import Plan

COMMANDS = typer.main.get_command(app).commands["federate"].commands  # type: ignore[attr-defined]


def quietly(*arguments: object) -> None:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert not stop.value.code


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation with two sites, `oslo` approved and `rome` not."""
    folder = tmp_path_factory.mktemp("federation")
    quietly("federate", "init", folder / "op", "--host", "localhost", "--dataset", "digits", "--json")
    invitation = ("--invitation", folder / "op" / "invitation.toml")
    for place, name in enumerate(("oslo", "rome")):
        options = ("--name", name, "--dataset", "digits", "--client", place, "--json")
        quietly("federate", "join", folder / name, *invitation, *options)
    quietly("federate", "approve", folder / "op", folder / "oslo" / "oslo.request.toml", "--yes", "--json")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "f")
    monkeypatch.chdir(tmp_path / "f")
    return tmp_path / "f"


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*arguments: object) -> Any:
        """Call a command that succeeds; return its JSON."""
        code, out, err = call(capsys, "federate", *arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return ask


@pytest.fixture
def refuse(capsys: pytest.CaptureFixture[str]) -> Any:
    def refuse(*arguments: object) -> str:
        """Call a command that is refused as bad input; return its one line."""
        code, out, err = call(capsys, "federate", *arguments)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        return err

    return refuse


def test_both_sides_see_the_same_fingerprints(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    operator = call(capsys, "federate", "init", "op")[1]
    code, site, _ = call(
        capsys,
        "federate",
        "join",
        "bern",
        *("--invitation", "op/invitation.toml", "--name", "bern", "--dataset", "digits"),
    )
    assert code == 0
    (server,) = [line.split()[-1] for line in operator.splitlines() if "server's fingerprint" in line]
    assert f"server's fingerprint     {server}" in site
    (own,) = [line.split()[-1] for line in site.splitlines() if "this site's fingerprint" in line]
    code, out, err = call(capsys, "federate", "approve", "op", "bern/bern.request.toml")
    assert (code, out) == (2, f"bern has the fingerprint  {own}\n")
    assert "bern is not approved: compare its fingerprint by telephone" in err


def test_a_plan_has_the_default_settings_of_a_run_on_the_same_data(folder: Path, ask: Any) -> None:
    plan = Plan.read("op/plan.toml")
    assert (plan.method.name, plan.rounds, plan.shape) == ("fedcap", 30, (1, 8, 8))
    assert plan.method.options["t_norm"] == 6.0
    flags = "--method fedavg --rounds 7 --set method.rule=median --set training.epochs=2 --set deadline=50"
    ask("init", "two", "--host", "h", "--dataset", "digits", *flags.split(), "--assumed", "0.2")
    plan = Plan.read("two/plan.toml")
    assert (plan.method.name, plan.rounds, plan.deadline, plan.assumed) == ("fedavg", 7, 50.0, 0.2)
    assert plan.training["epochs"] == 2
    assert plan.method.options["rule"] == {"name": "median"}


def test_a_plan_can_be_made_without_samples(folder: Path, ask: Any) -> None:
    ask("init", "two", "--host", "h", "--classes", "ill, well", "--shape", "12", "--port", "8443")
    plan = Plan.read("two/plan.toml")
    assert (plan.classes, plan.shape, plan.model, plan.pixels) == (("ill", "well"), (12,), "mlp", False)
    assert Operator("two").federation.address == "h:8443"


def test_a_second_init_keeps_the_files_and_writes_the_invitation_again(folder: Path, ask: Any) -> None:
    before = ask("init", "op")
    certificate = Path("op/certificates/server.crt").read_bytes()
    plan = Path("op/plan.toml")
    plan.write_text(plan.read_text().replace("rounds = 30", "rounds = 40"))
    assert any("does not match plan.toml" in line for line in problems(folder / "op"))
    after = ask("init", "op")
    assert after["plan"] != before["plan"]
    assert after["fingerprint"] == before["fingerprint"]
    assert "rounds = 40" in Path("op/invitation.toml").read_text()
    assert Path("op/certificates/server.crt").read_bytes() == certificate
    assert ask("init", "op", "--renew")["fingerprint"] == before["fingerprint"]
    assert Path("op/certificates/server.crt").read_bytes() != certificate


def problems(directory: Path) -> list[str]:
    from fedcap.federation.checks import check_operator

    return [found.message for found in check_operator(Operator(directory)) if not found.ok]


def test_a_request_without_confirmation_is_not_approved(
    folder: Path, ask: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(capsys, "federate", "approve", "op", "rome/rome.request.toml")[0] == 2
    assert [row["state"] for row in ask("status", "op", "--clients")] == ["approved", "asked"]
    assert ask("approve", "op", "rome", "--yes")["new"] is True
    assert ask("approve", "op", "rome", "--yes")["new"] is False
    assert [row["state"] for row in ask("status", "op", "--clients")] == ["approved", "approved"]


def test_a_removed_client_comes_back_only_by_readmission_with_a_reason(
    folder: Path, ask: Any, refuse: Any
) -> None:
    removed = ask("remove", "op", "oslo", "--reason", "left the consortium")
    assert (removed["state"], removed["by"], removed["reason"]) == (
        "removed",
        "operator",
        "left the consortium",
    )
    refuse("approve", "op", "oslo/oslo.request.toml", "--yes")
    refuse("readmit", "op", "oslo")
    assert ask("readmit", "op", "oslo", "--reason", "came back")["state"] == "approved"
    (row,) = ask("status", "op", "--clients")
    assert [change["state"] for change in row["changes"]] == ["asked", "approved", "removed", "approved"]


@pytest.fixture
def read_plan(capsys: pytest.CaptureFixture[str]) -> Any:
    def read_plan(*arguments: object) -> Any:
        """Read a plan without agreeing to it; return its JSON."""
        code, out, err = call(capsys, "federate", "agree", *arguments, "--json")
        assert (code, len(err.splitlines())) == (2, 1)
        return json.loads(out)

    return read_plan


def test_a_site_agrees_to_one_plan_only(folder: Path, ask: Any, read_plan: Any) -> None:
    assert read_plan("oslo")["agreed"] is False
    assert ask("agree", "oslo", "--yes")["agreed"] is True
    assert ask("agree", "oslo")["agreed"] is True
    plan = Path("op/plan.toml")
    plan.write_text(plan.read_text().replace("rounds = 30", "rounds = 31"))
    ask("init", "op")
    new = read_plan("oslo", "--invitation", "op/invitation.toml")
    assert (new["agreed"], new["plan"]["rounds"]) == (False, 31)
    assert ask("init", "op")["plan"] == new["digest"]


def test_a_site_agrees_to_nothing_that_its_policy_forbids(folder: Path, read_plan: Any) -> None:
    policy = Path("oslo/policy.toml")
    policy.write_text(policy.read_text().replace("rounds = 10000", "rounds = 29"))
    found = read_plan("oslo", "--yes")
    assert found["agreed"] is False
    assert "at most 29" in found["objection"]


def test_an_invitation_of_another_server_is_refused(folder: Path, ask: Any, refuse: Any) -> None:
    ask("init", "evil", "--host", "localhost", "--dataset", "digits")
    before = Path("oslo/invitation.toml").read_text()
    refuse("agree", "oslo", "--invitation", "evil/invitation.toml", "--yes")
    assert Path("oslo/invitation.toml").read_text() == before
    for content in ("", "x" * 2_000_000):
        Path("bad.toml").write_text(content)
        refuse("join", "new", "--invitation", "bad.toml", "--name", "x", "--dataset", "digits")
    assert not Path("new").exists()


def test_changed_lines_of_the_audit_are_found_with_exit_code_1(
    folder: Path, ask: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ask("audit", "op")
    assert ask("audit", "op", "--head", found["head"]) == found
    assert (found["whole"], found["lines"], found["problems"]) == (True, 3, [])
    assert [event["event"] for event in ask("status", "op", "--events")] == ["plan", "asked", "approved"]
    (asked,) = ask("status", "op", "--event", "asked")
    assert asked["facts"]["name"] == "oslo"
    path = Path("op/audit.jsonl")
    path.write_text(path.read_text().replace("oslo", "rome", 1))
    code, out, err = call(capsys, "federate", "audit", "op")
    assert (code, out, err) == (1, "audit.jsonl, line 2, was changed\n", "")


def test_status_shows_an_operator_and_a_site(
    folder: Path, ask: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ask("status", "op")
    assert (found["rounds"], found["running"], found["clients"]) == ("0 of 30", False, "1 approved")
    assert (ask("status", "oslo")["last_round"], ask("status", "oslo")["agreed_to"]) == (None, [])
    with held(Path("op")):
        assert ask("status", "op")["running"] is True
    assert "  rounds         0 of 30\n" in call(capsys, "federate", "status", "op")[1]


def test_two_servers_or_two_sites_do_not_share_a_directory(folder: Path, ask: Any, refuse: Any) -> None:
    refuse("site", "oslo")
    ask("agree", "oslo", "--yes")
    with held(Path("op")), held(Path("oslo")):
        assert "another process is running in op" in refuse("serve", "op", "--own-nginx")
        assert "another process is running in oslo" in refuse("site", "oslo")
    refuse("customise", "oslo")


def minimal(command: click.Command) -> list[str]:
    """Return arguments with which a command can be parsed."""
    found = []
    for parameter in command.params:
        if parameter.required:
            found += [parameter.opts[0], "x"] if isinstance(parameter, click.Option) else ["x"]
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_without_flower_every_command_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda module: None if module == "flwr" else real(module)
    )
    code, out, err = call(capsys, "federate", name, *minimal(COMMANDS[name]))
    assert (code, out) == (2, "")
    assert err == "fedcap: a federation needs Flower: pip install 'fedcap[flower]'\n"
    assert call(capsys, "federate", name, "--help")[0] == 0
