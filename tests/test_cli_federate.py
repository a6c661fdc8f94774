"""`fedcap federate` as an operator and a site use it, up to the moment when processes start."""

from __future__ import annotations

import importlib.util
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from helpers import call

pytest.importorskip("flwr")

from fedcap.cli import app, main
from fedcap.federation.audit import Audit
from fedcap.federation.config import Operator, held
from fedcap.federation.plan import Plan

LEAVES = typer.main.get_command(app).commands["federate"].commands  # type: ignore[attr-defined]


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
        quietly("federate", "enrol", folder / name, *invitation, *options)
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
        "enrol",
        "bern",
        *("--invitation", "op/invitation.toml", "--name", "bern", "--dataset", "digits"),
    )
    assert code == 0
    (server,) = [line.split()[-1] for line in operator.splitlines() if "server's fingerprint" in line]
    assert f"server's fingerprint     {server}" in site
    (own,) = [line.split()[-1] for line in site.splitlines() if "this site's fingerprint" in line]
    code, out, err = call(capsys, "federate", "approve", "op", "bern/bern.request.toml")
    assert (code, out) == (2, f"bern has the fingerprint  {own}\n")
    assert "compare it with the one that bern reads out by telephone" in err


def test_the_files_say_what_each_entry_means_and_read_back(folder: Path) -> None:
    for path in ("op/federation.toml", "op/plan.toml", "oslo/site.toml", "oslo/policy.toml"):
        lines = Path(path).read_text().splitlines()
        entries = [place for place, line in enumerate(lines) if " = " in line and not line.startswith("#")]
        tables = [place for place, line in enumerate(lines) if line.startswith("[")]
        for place in entries[: 1 if tables else None]:
            assert lines[place - 1].startswith("# "), (path, lines[place])
        assert tomllib.loads(Path(path).read_text())
    plan = Plan.read("op/plan.toml")
    assert (plan.method.name, plan.rounds, plan.shape) == ("fedcap", 30, (1, 8, 8))
    assert plan.method.options["t_norm"] == 6.0


def test_a_plan_has_what_a_run_on_such_samples_has(folder: Path, ask: Any) -> None:
    flags = [
        "--method",
        "fedavg",
        "--rounds",
        "7",
        "--set",
        "method.rule=median",
        "--set",
        "training.epochs=2",
    ]
    ask(
        "init",
        "two",
        "--host",
        "h",
        "--dataset",
        "digits",
        *flags,
        "--set",
        "deadline=50",
        "--assumed",
        "0.2",
    )
    plan = Plan.read("two/plan.toml")
    assert (plan.method.name, plan.rounds, plan.deadline, plan.assumed) == ("fedavg", 7, 50.0, 0.2)
    assert plan.training["epochs"] == 2
    assert plan.method.options["rule"] == {"name": "median"}


def test_a_plan_can_be_made_by_somebody_who_has_no_samples(folder: Path, ask: Any, refuse: Any) -> None:
    ask("init", "two", "--host", "h", "--classes", "ill, well", "--shape", "12", "--port", "8443")
    plan = Plan.read("two/plan.toml")
    assert (plan.classes, plan.shape, plan.model, plan.pixels) == (("ill", "well"), (12,), "mlp", False)
    assert Operator("two").federation.address == "h:8443"
    assert "--dataset with some like them, or --classes and --shape" in refuse("init", "three", "--host", "h")
    assert "such as 1,28,28" in refuse("init", "three", "--host", "h", "--classes", "a,b", "--shape", "x")
    assert "--host NAME" in refuse("init", "three", "--dataset", "digits")
    assert not Path("three").exists()


def test_init_again_keeps_what_is_there_and_writes_the_invitation_anew(
    folder: Path, ask: Any, refuse: Any
) -> None:
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
    assert "is a federation already" in refuse("init", "op", "--rounds", "9")


def problems(directory: Path) -> list[str]:
    from fedcap.federation.checks import check_operator

    return [found.message for found in check_operator(Operator(directory)) if not found.ok]


def test_a_request_that_is_not_confirmed_stays_asked(
    folder: Path, ask: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(capsys, "federate", "approve", "op", "rome/rome.request.toml")[0] == 2
    assert [row["state"] for row in ask("clients", "op")] == ["approved", "asked"]
    assert ask("approve", "op", "rome", "--yes")["new"] is True
    assert ask("approve", "op", "rome", "--yes")["new"] is False
    assert [row["state"] for row in ask("clients", "op")] == ["approved", "approved"]


def test_a_removed_client_comes_back_only_by_readmission_with_a_reason(
    folder: Path, ask: Any, refuse: Any
) -> None:
    told = ask("remove", "op", "oslo", "--reason", "left the consortium")
    assert (told["state"], told["by"], told["reason"]) == ("removed", "operator", "left the consortium")
    said = refuse("approve", "op", "oslo/oslo.request.toml", "--yes")
    assert "oslo was removed: left the consortium; to take it back: fedcap federate readmit op oslo" in said
    assert "Missing option '--reason'" in refuse("readmit", "op", "oslo")
    assert "reason" in refuse("readmit", "op", "oslo", "--reason", " ")
    assert ask("readmit", "op", "oslo", "--reason", "came back")["state"] == "approved"
    (row,) = ask("clients", "op")
    assert [change["state"] for change in row["changes"]] == ["asked", "approved", "removed", "approved"]
    assert "oslo is approved, not removed" in refuse("readmit", "op", "oslo", "--reason", "again")
    assert "no client is called 'olso': did you mean 'oslo'" in refuse(
        "remove", "op", "olso", "--reason", "x"
    )


def test_a_site_agrees_to_one_plan_and_to_no_other(folder: Path, ask: Any, refuse: Any) -> None:
    assert ask("show-plan", "oslo")["agreed"] is False
    assert ask("show-plan", "oslo", "--agree")["agreed"] is True
    plan = Path("op/plan.toml")
    plan.write_text(plan.read_text().replace("rounds = 30", "rounds = 31"))
    ask("init", "op")
    new = ask("show-plan", "oslo", "--invitation", "op/invitation.toml")
    assert (new["agreed"], new["plan"]["rounds"]) == (False, 31)
    assert ask("show-plan", "op")["digest"] == new["digest"]
    assert "agreeing is for sites" in refuse("show-plan", "op", "--agree")


def test_a_site_agrees_to_nothing_that_its_policy_forbids(folder: Path, ask: Any, refuse: Any) -> None:
    policy = Path("oslo/policy.toml")
    policy.write_text(policy.read_text().replace("rounds = 10000", "rounds = 29"))
    assert "policy.toml forbids this plan: 30 rounds" in refuse("show-plan", "oslo", "--agree")
    assert "at most 29" in ask("show-plan", "oslo")["objection"]


def test_an_invitation_of_another_server_is_not_taken(folder: Path, ask: Any, refuse: Any) -> None:
    ask("init", "evil", "--host", "localhost", "--dataset", "digits")
    said = refuse("show-plan", "oslo", "--invitation", "evil/invitation.toml", "--agree")
    assert "of another server than this site trusts" in said
    for content, wrong in (("", "no server, certificate and plan"), ("x" * 2_000_000, "more than")):
        Path("bad.toml").write_text(content)
        options = ("--invitation", "bad.toml", "--name", "x", "--dataset", "digits")
        assert wrong in refuse("enrol", "new", *options)


def test_a_site_is_set_up_once_and_under_a_proper_name(folder: Path, refuse: Any) -> None:
    options = ("--invitation", "op/invitation.toml", "--dataset", "digits", "--name")
    assert "oslo is a site already" in refuse("enrol", "oslo", *options, "oslo")
    assert "not a site's name" in refuse("enrol", "new", *options, "../x")


def test_changed_lines_of_the_audit_end_verify_with_1(
    folder: Path, ask: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    head = ask("audit", "head", "op")["head"]
    assert ask("audit", "verify", "op", "--head", head) == {"whole": True, "lines": 3, "problems": []}
    assert [event["event"] for event in ask("audit", "show", "op")] == ["plan", "asked", "approved"]
    assert [event["facts"]["name"] for event in ask("audit", "show", "op", "--event", "asked")] == ["oslo"]
    path = Path("op/audit.jsonl")
    path.write_text(path.read_text().replace("oslo", "rome", 1))
    code, out, err = call(capsys, "federate", "audit", "verify", "op")
    assert (code, out, err) == (1, "audit.jsonl, line 2, was changed\n", "")


def test_status_tells_of_either_side(folder: Path, ask: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = ask("status", "op")
    assert (found["rounds"], found["running"], found["clients"]) == ("0 of 30", False, "1 approved")
    assert (ask("status", "oslo")["last_round"], ask("status", "oslo")["agreed_to"]) == (None, [])
    with held(Path("op")):
        assert ask("status", "op")["running"] is True
    assert "  rounds         0 of 30\n" in call(capsys, "federate", "status", "op")[1]


def test_two_servers_or_two_sites_do_not_share_a_directory(folder: Path, ask: Any, refuse: Any) -> None:
    assert "has agreed to no plan" in refuse("site", "oslo")
    ask("show-plan", "oslo", "--agree")
    with held(Path("op")), held(Path("oslo")):
        assert "another process is running in op" in refuse("server", "op", "--own-nginx")
        assert "another process is running in oslo" in refuse("site", "oslo")
    assert "start the site first" in refuse("customise", "oslo")


def test_a_directory_of_the_other_side_or_of_nobody_is_told(folder: Path, refuse: Any) -> None:
    assert "is a site's directory" in refuse("clients", "oslo")
    assert "is the operator's directory" in refuse("site", "op")
    assert "neither an operator's directory" in refuse("status", ".")
    assert "neither an operator's directory" in refuse("audit", "verify", ".")


def minimal(command: click.Command) -> list[str]:
    """Return arguments with which a command can be parsed."""
    found = []
    for parameter in command.params:
        if parameter.required:
            found += [parameter.opts[0], "x"] if isinstance(parameter, click.Option) else ["x"]
    return found


def leaves(commands: dict[str, Any], way: tuple[str, ...] = ()) -> dict[str, click.Command]:
    found = {}
    for name, command in commands.items():
        inner = getattr(command, "commands", None)
        found |= leaves(inner, (*way, name)) if inner else {" ".join((*way, name)): command}
    return found


@pytest.mark.parametrize("way", leaves(LEAVES))
def test_without_flower_every_command_says_what_to_install(
    way: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "flwr" else real(name))
    code, out, err = call(capsys, "federate", *way.split(), *minimal(leaves(LEAVES)[way]))
    assert (code, out) == (2, "")
    assert err == "fedcap: a federation needs Flower: pip install 'fedcap[flower]'\n"
    assert call(capsys, "federate", *way.split(), "--help")[0] == 0


def test_a_hostile_reason_on_the_command_line_is_bounded(folder: Path, ask: Any) -> None:
    ask("remove", "op", "oslo", "--reason", "x\n" * 50_000)
    assert len(Audit("op/audit.jsonl").path.read_text()) < 4000
    assert ask("audit", "verify", "op")["whole"] is True
