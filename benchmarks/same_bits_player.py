"""One side of `benchmarks.same_bits`: play a fixed list of small runs, and write what each leaves behind.

It writes JSON lines to standard output: first {"cases": […], "quick": […]}, the names of all cases, then for
each case that is asked for {"case": name, "items": {…}}. Items are numbers, short texts, or hashes of what is
longer. Both trees are played by the same player, so it uses only what both have: the public Python interface
and the command line. What has moved between the two is listed in `RENAMED`.

Standard input is then a JSON list of the names of the cases to play. Times, dates, paths, versions and
commits are left out. Sentences for people are in items of their own, which begin with "wording".
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import itertools
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

import fedcap
from fedcap import Experiment, Grid, aggregators, attacks, detectors, methods, read

Items = dict[str, Any]
Play = Callable[[Path], Items]

RENAMED = {
    "server of a simulation": ("server",),
    "remove a client": ("remove",),
    "readmit a client": ("readmit",),
    "digest of recorded settings": ("digest",),
}
"""By what is meant, the names that an attribute has in the trees that are compared: the first one counts."""

SETTINGS: dict[str, Any] = {
    "dataset": {"name": "digits", "clients": 8, "samples": 40},
    "rounds": 3,
    "training": {"lr": 0.1, "epochs": 1},
    "malicious": 0.25,
    "workers": 1,
}
HARDENED = {"name": "fedcap", "preset": "hardened"}
STRONG: dict[str, Any] = {"name": "ipm", "epsilon": 100.0}
"""An attack that every detector finds."""
IN_TIME: dict[str, dict[str, Any]] = {"sleeper": {"wake": 2}, "mimic": {"warm_up": 1}}
"""Options without which an attack would do nothing in a few rounds."""
NOT_COMPARED = frozenset(
    {
        "seconds",
        "seconds_server",
        "checksum",
        "auc",
        "balanced_accuracy",
        "calibration_error",
        "tested",
        "integers",
        "versions",
        "commit",
        "directory",
        "evidence",
        "places",
        "samples",
        "features",
    }
)
"""Fields that differ between two runs of one tree, or that only newer trees write."""
LONGEST = 60
"""How long a value may be, as JSON; of longer ones there is a hash."""

OWN = '''
"""Things of the user's own."""

from dataclasses import dataclass

from torch import nn

from fedcap.attacks import Attack


@dataclass(frozen=True)
class Opposite(Attack):
    """Send the opposite."""

    def craft(self, view):
        return -1.5 * view.updates[view.malicious]


def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def normed():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10))
'''


# --- What is compared


def attribute(of: Any, meaning: str) -> Any:
    """Return an attribute by what it is for."""
    return next(getattr(of, name) for name in RENAMED[meaning] if hasattr(of, name))


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]


def of_tensor(tensor: Any) -> str:
    """Return dtype, shape and a hash of all bytes."""
    if isinstance(tensor, torch.Tensor):
        plain = tensor.detach().cpu().contiguous()
        content = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
        return f"{plain.dtype} {list(plain.shape)} {sha(content)}"
    array = np.ascontiguousarray(tensor)
    return f"{array.dtype} {list(array.shape)} {sha(array.tobytes())}"


def short(value: Any) -> Any:
    """Return a value, or a hash of it if it is long."""
    text = json.dumps(value)
    return value if len(text) <= LONGEST else f"sha {sha(text.encode())}"


def parted(value: Any, words: list[str]) -> Any:
    """Return a nested value without times, and with "…" for every sentence, which goes into `words`."""
    if isinstance(value, Mapping):
        plain = {key: parted(item, words) for key, item in value.items() if key not in NOT_COMPARED}
        if plain.get("tallies"):
            plain["tallies"].pop("clients", None)
        return plain
    if isinstance(value, list):
        return [parted(item, words) for item in value]
    if isinstance(value, str) and " " in value:
        words.append(value)
        return "…"
    return value


def entries(where: str, table: Mapping[str, Any]) -> Items:
    """Return an item for each entry of a table, and one for its sentences."""
    words: list[str] = []
    plain = parted(table, words)
    return {**{f"{where}: {key}": short(plain[key]) for key in plain}, f"wording of {where}": short(words)}


def of_checkpoint(path: Path) -> Items:
    """Return every tensor of a safetensors file, and what is written beside them."""
    with safe_open(path, framework="pt") as file:
        found = {name: of_tensor(file.get_tensor(name)) for name in sorted(file.keys())}
        about = json.loads((file.metadata() or {}).get("run", "{}"))
    items = {}
    for name, told in found.items():
        of = "wording of checkpoint" if name.endswith("sentences") else "checkpoint"
        items[f"{of}: {name}"] = told
    return items | entries("checkpoint is", about)


def of_run(directory: Path) -> Items:
    """Return all that a run has left in its directory."""
    items: Items = {"files": sorted(path.name for path in directory.iterdir() if path.name[0] != ".")}
    for number, line in enumerate((directory / "rounds.jsonl").read_text().splitlines(), start=1):
        items |= entries(f"round {number}", json.loads(line))
    if (directory / "mixing.bin").exists():
        items["mixing.bin"] = sha((directory / "mixing.bin").read_bytes())
    if (directory / "checkpoint.safetensors").exists():
        items |= of_checkpoint(directory / "checkpoint.safetensors")
    for name in ("result.json", "provenance.json"):
        if (directory / name).exists():
            items |= entries(name, json.loads((directory / name).read_text()))
    config = tomllib.loads((directory / "config.toml").read_text())
    config["dataset"].pop("path", None)
    return items | entries("config.toml", config)


def prefixed(prefix: str, items: Items) -> Items:
    """Return the items under longer names; the wording still comes first."""
    return {
        f"wording of {prefix} {name}" if name.startswith("wording") else f"{prefix} {name}": value
        for name, value in items.items()
    }


def attempt(play: Callable[[], Items]) -> Items:
    """Return items, or the type of the error that came instead."""
    try:
        return play()
    except Exception as error:
        return {"error": type(error).__name__, "wording of error": short(str(error))}


# --- Runs


def experiment(**more: Any) -> Experiment:
    """Return a small experiment; `more` goes over its settings, tables over tables."""
    given = dict(SETTINGS)
    for key, value in more.items():
        both = isinstance(value, Mapping) and isinstance(given.get(key), Mapping)
        given[key] = {**given[key], **value} if both else value
    return Experiment(**given)


def run(**more: Any) -> Play:
    """Return a case: a run with its directory."""

    def play(folder: Path) -> Items:
        experiment(**more).run(out=folder / "run")
        return of_run(folder / "run")

    return play


class Killed(Exception):
    """Ends a run."""


class Observer:
    """Watches a run, and does nothing."""

    def started(self, simulation: Any) -> None:
        pass

    def round_done(self, simulation: Any, record: Any) -> None:
        pass

    def finished(self, result: Any) -> None:
        pass


class Killer(Observer):
    """Ends a run after a round."""

    def __init__(self, after: int) -> None:
        self._after = after

    def round_done(self, simulation: Any, record: Any) -> None:
        if record.round == self._after:
            raise Killed


class ByHand(Observer):
    """Removes a client after the first round, and readmits it after a later one."""

    def __init__(self, client: str, back: int) -> None:
        self._client, self._back = client, back

    def round_done(self, simulation: Any, record: Any) -> None:
        server = attribute(simulation, "server of a simulation")
        if record.round == 1:
            attribute(server, "remove a client")(self._client, "by hand")
        if record.round == self._back:
            attribute(server, "readmit a client")(self._client)


def by_hand(back: int, **more: Any) -> Play:
    """Return a case: a client is removed by hand and, after round `back`, readmitted."""

    def play(folder: Path) -> Items:
        experiment(**more).run(out=folder / "run", observers=[ByHand("3", back)])
        return of_run(folder / "run")

    return play


def resumed(after: int, cli: bool = False, **more: Any) -> Play:
    """Return a case: a run is killed after a round and resumed, which gives what it gives uninterrupted."""

    def play(folder: Path) -> Items:
        with suppress(Killed):
            experiment(**more).run(out=folder / "run", observers=[Killer(after)])
        stopped = prefixed("stopped", of_run(folder / "run"))
        if cli:
            command("run", "--resume", folder / "run", "--workers", 1)
        else:
            experiment(**more).run(out=folder / "run")
        experiment(**more).run(out=folder / "whole")
        found, whole = of_run(folder / "run"), of_run(folder / "whole")
        return {"as uninterrupted": found == whole, **stopped, **found}

    return play


def extended(**more: Any) -> Play:
    """Return a case: a run of two rounds that goes on to three."""

    def play(folder: Path) -> Items:
        experiment(**{**more, "rounds": 2}).run(out=folder / "run")
        experiment(**more).run(out=folder / "run", extend=True)
        return of_run(folder / "run")

    return play


def two_workers(**more: Any) -> Play:
    """Return a case: two worker processes give what one gives."""

    def play(folder: Path) -> Items:
        for workers in (1, 2):
            experiment(**more, workers=workers).run(out=folder / str(workers))
        one, two = ({**of_run(folder / name), "config.toml: workers": None} for name in ("1", "2"))
        return {"as one worker": one == two, **two}

    return play


def in_memory(**more: Any) -> Play:
    """Return a case: a run without a directory, and the answers of its models."""

    def play(folder: Path) -> Items:
        result = experiment(**more).run()
        items = entries("result", json.loads(result.to_json()))
        return items | answers(result.models, [f"{k}" for k in range(8)])

    return play


def answers(models: Any, clients: Sequence[str]) -> Items:
    """Return the probabilities that each client's models answer, in every reading."""
    x = np.random.default_rng(0).normal(size=(7, 1, 8, 8)).astype(np.float32)
    items: Items = {}
    for client, reading in itertools.product(clients, ("personal", "shared", "global")):
        found = attempt(
            lambda client=client, reading=reading: {"": of_tensor(models.predict(client, x, reading))}
        )
        items |= prefixed(f"{reading} {client}", found)
    return items


def read_back(**more: Any) -> Play:
    """Return a case: a finished run is read, its models answer, and one is exported by the command line."""

    def play(folder: Path) -> Items:
        experiment(**more).run(out=folder / "run")
        found = read(folder / "run")
        items = answers(found, found.provenance.clients)
        state = found.model(found.provenance.clients[0]).state_dict()
        items |= {f"model: {name}": of_tensor(tensor) for name, tensor in state.items()}
        rows = found.frame()
        rows = rows if isinstance(rows, list) else json.loads(rows.to_json(orient="records"))
        items["frame"] = short(rows)
        items |= entries("show", json.loads(command("show", folder / "run", "--json"))[0])
        file = folder / "model.safetensors"
        command("export", folder / "run", "--client", found.provenance.clients[0], "-o", file)
        return items | prefixed("exported", of_checkpoint(file))

    return play


def command(*words: object) -> str:
    """Run a command of fedcap, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fedcap", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"fedcap {' '.join(map(str, words))}: {done.stderr.strip()[-300:]}")
    return done.stdout


def command_run(folder: Path) -> Items:
    flags = "--dataset digits --method fedcap --attack ipm --malicious 0.25 --rounds 2 --workers 1 --seed 3"
    options = ("dataset.clients=8", "dataset.samples=40", "training.epochs=1", "method.alpha=7")
    more = [word for option in options for word in ("--set", option)]
    command("run", *flags.split(), *more, "--out", folder / "run")
    return of_run(folder / "run")


GRID: dict[str, Any] = {
    "methods": ["fedavg", "fedcap"],
    "attacks": ["none", "ipm"],
    "seeds": "0-1",
    "axes": {"training.lr": [0.1, 0.05]},
}


def grid_items(folder: Path) -> Items:
    """Return the outcomes of a grid's cells by their names, and a hash of each table."""
    items: Items = {}
    for path in sorted(folder.glob("cells/*/outcome.json")):
        items |= entries(path.parent.name, json.loads(path.read_text()))
    tables = [folder / name for name in ("means.csv", "tables.md", "tables.tex")]
    return items | {f"wording of {path.name}": sha(path.read_bytes()) for path in tables if path.exists()}


def grid(folder: Path) -> Items:
    common = {key: value for key, value in SETTINGS.items() if key != "workers"}
    Grid(**GRID, **common | {"rounds": 2}).run(out=folder / "grid")
    return grid_items(folder / "grid")


def command_compare(folder: Path) -> Items:
    options = ("dataset.clients=8", "dataset.samples=40", "training.epochs=1", "malicious=0.25")
    more = [word for option in options for word in ("--set", option)]
    axes = "--method fedavg,ditto --rule median,krum --attack ipm --seed 0 --rounds 2 --quiet --workers 1"
    if "--methods" in command("compare", "--help"):  # an older revision
        axes = "--methods fedavg,ditto --rules median,krum --attacks ipm --seeds 0"
        axes += " --rounds 2 --quiet --jobs 1"
    command("compare", *axes.split(), "--against", "fedavg+median", *more, "--out", folder / "grid")
    return grid_items(folder / "grid")


def listing(folder: Path) -> Items:
    """Return the names of each kind of thing, in order."""
    kinds = json.loads(command("list", "--json"))
    return {kind: list(names) for kind, names in kinds.items()}


# --- Things called without a run


def matrix(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    made = np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)
    made[1] *= 5
    made[2] = made[3] + 1e-4 * made[2]
    return torch.from_numpy(made)


def rule(choice: Mapping[str, Any]) -> Play:
    """Return a case: a rule on matrices of several sizes, with and without rows that are not finite."""

    def play(folder: Path) -> Items:
        made = aggregators.make(**choice)
        items: Items = {}
        for rows, columns, bad in ((7, 50, 1), (13, 5003, 3), (40, 20_001, 9)):
            updates = matrix(rows, columns)
            weights = torch.arange(1, rows + 1).double()
            for spoilt in (False, True):
                if spoilt:
                    updates[5, 3] = float("nan")
                name = f"{rows}×{columns}, {bad} bad{', NaN' * spoilt}"
                found = attempt(
                    lambda updates=updates, weights=weights, bad=bad: {
                        "aggregate": of_tensor(made(updates, weights, bad))
                    }
                )
                items |= prefixed(name, found)
        return items

    return play


def attack_rows(choice: Mapping[str, Any]) -> Play:
    """Return a case: an attack on matrices, without a server."""

    def play(folder: Path) -> Items:
        made = attacks.make(**choice)
        items: Items = {}
        for rows, columns, bad in ((8, 50, 2), (20, 5003, 7)):
            flags = torch.arange(rows) % 3 == 0 if bad == 7 else torch.arange(rows) < bad
            generator = torch.Generator().manual_seed(7)
            items[f"{rows}×{columns}"] = of_tensor(made(matrix(rows, columns), flags, generator))
        return items

    return play


def equations(folder: Path) -> Items:
    """Return what the public functions of FedCAP's equations compute."""
    pool, items = matrix(9, 3001), {}
    asking = torch.cat([pool[:5], matrix(9, 3001, seed=1)[:2]])
    own = torch.tensor([0, 1, 2, 3, 4, -1, -1])
    for alpha, phi in itertools.product((0.0, 5.0, 20.0), (0.0, 0.1, 1.0)):
        weights = fedcap.customization_weights(asking, pool, own, alpha, phi)
        items[f"weights, alpha {alpha}, phi {phi}"] = of_tensor(weights)
    return items | {"calibrated": of_tensor(fedcap.calibrate(pool, pool.mean(dim=0)))}


def outcomes(results: Path, packed: bool) -> Iterator[Mapping[str, Any]]:
    """Yield all published outcomes: of single files, and of the lines of packed grids."""
    for path in sorted(results.glob("*.json")):
        yield {**json.loads(path.read_text()), "file": path.stem}
    for path in sorted([*results.glob("*.jsonl"), *results.glob("*.jsonl.gz")]) if packed else ():
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = list(map(json.loads, text.splitlines()))
        common = {"settings": {}} if "digest" in lines[0] else lines.pop(0)  # older files are factored
        for line in lines:
            yield {**line, "settings": merged(line["settings"], common["settings"])}


def merged(table: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a line of a packed grid has of its own over what all lines have."""
    both = {key: merged(value, common[key]) for key, value in table.items() if isinstance(value, Mapping)
            and isinstance(common.get(key), Mapping)}  # fmt: skip
    return {**common, **table, **both}


def published(packed: bool) -> Play:
    """Return a case: each published outcome has the digest of its settings, where the data set is here."""

    def play(folder: Path) -> Items:
        count = found = absent = 0
        misnamed, wrong, resolved = [], [], hashlib.sha256()
        for outcome in outcomes(Path(fedcap.__file__).parents[2] / "results", packed):
            count += 1
            if "file" in outcome and not outcome["digest"].startswith(outcome["file"]):
                misnamed.append(outcome["file"])
            made = Experiment(**outcome["settings"])
            settings = made.settings()
            settings["dataset"].pop("path", None)
            resolved.update(json.dumps(settings, sort_keys=True).encode())
            try:
                digest = attribute(made, "digest of recorded settings")(outcome["settings"])
            except fedcap.InputError:  # the files of the data set are not here
                absent += 1
                continue
            found += digest == outcome["digest"]
            if digest != outcome["digest"]:
                wrong.append(outcome["digest"])
        told = f"{found} found of {count}" + f", {absent} without their data here" * bool(absent)
        return {
            "published digests": told,
            "settings of all": resolved.hexdigest(),
            "files misnamed": short(misnamed),
            "digests not found": short(wrong),
        }

    return play


# --- The cases


@dataclass(frozen=True)
class Case:
    name: str
    play: Play
    quick: bool = False


def tables(choice: str | Mapping[str, Any]) -> dict[str, Any]:
    return {"name": choice} if isinstance(choice, str) else dict(choice)


def spelled(choice: Any) -> str:
    """Return a short name for a thing and its options."""
    if not isinstance(choice, Mapping):
        return str(choice)
    options = (f"{key}={spelled(value)}" for key, value in choice.items() if key != "name")
    told = ",".join(options)
    return f"{choice.get('name', '')}({told})" if told else str(choice["name"])


def attack_choices() -> list[dict[str, Any]]:
    return [{"name": name, **IN_TIME.get(name, {})} for name in attacks.names()]


def matrix_of_methods() -> Iterator[Case]:
    """Yield every method, and the hardened preset, under every attack, with all clients and with half."""
    for method in [*methods.names(), HARDENED]:
        for attack in ["none", *attack_choices()]:
            for share in (1.0, 0.5):
                of = tables(attack)["name"]
                # One run per method, and one per attack against the method that all attacks can see.
                quick = (share == 0.5 and of in ("none", "ipm")) or (
                    share == 1.0 and method == "fedcap" and of != "none"
                )
                name = f"method {spelled(method)}, attack {of}, participation {share:g}"
                yield Case(name, run(method=method, attack=attack, participation=share), quick)


def options_of_attacks() -> Iterator[Case]:
    given = [
        *({"name": "malformed", "form": form} for form in
          ("nan", "infinity", "zero", "huge", "short", "integer", "text")),
        *({"name": "cuckoo", **more} for more in
          ({"length": "longest"}, {"against": "victim"}, {"blind": True}, {"gang": True}, {"noise": 0.0})),
        {"name": "frame", "how": "copy"},
        {"name": "frame", "rotate": True},
        {"name": "inflate", "stretch": 2.5},
        STRONG,
        {"name": "ipm", "claim": 1000},
        {"name": "label-flipping", "shift": 3},
        {"name": "lie", "z": 1.5},
        {"name": "lie", "over": "benign", "correction": 1},
        *({"name": name, "direction": way} for name in ("min-max", "min-sum") for way in ("sign", "unit")),
        {"name": "model-replacement", "scale": 20.0},
        {"name": "noisy", "shaped": True},
        {"name": "sign-flipping", "scale": 30.0},
        {"name": "sleeper", "wake": 1, "every": 2, "attack": "min-max"},
        {"name": "sleeper", "wake": 2, "attack": {"name": "mimic", "warm_up": 1}},
        {"name": "steady", "share": 0.5},
        {"name": "worst-of", "family": ["lie", "min-sum"], "sizes": [1.0, 3.0]},
    ]  # fmt: skip
    for attack, method in itertools.product(given, ("fedavg", "fedcap", HARDENED)):
        yield Case(f"attack {spelled(attack)} on {spelled(method)}", run(method=method, attack=attack))
    for attack in [*attack_choices(), *given]:
        yield Case(f"rows of {spelled(attack)}", attack_rows(attack))
    named = {"name": "min-max", "clients": ["0", "5", "6"]}
    yield Case("attackers by name", run(method="fedcap", attack=named))
    yield Case("attack of the user's own", run(method="fedcap", attack="same_bits_own:Opposite"))


def rules() -> Iterator[Case]:
    plain = aggregators.names()
    wrappers = [name for name in ("bucketing", "gas") if name in plain]
    inner = [name for name in plain if name not in wrappers]
    wrapped = [
        *({"name": "bucketing", "rule": name} for name in inner),
        *({"name": "gas", "rule": name, "chunks": 50} for name in inner),
        {"name": "bucketing", "size": 3, "seed": 5, "rule": {"name": "bucketing", "rule": "krum"}},
        {"name": "gas", "chunks": 9, "rule": {"name": "bucketing", "rule": "median"}},
        {"name": "trimmed-mean", "cut": "all"},
        {"name": "centred-clipping", "threshold": 0.2, "steps": 2},
        {"name": "dnc", "columns": 500, "iterations": 2, "factor": 0.5, "seed": 3},
        {"name": "geometric-median", "smoothing": 0.01},
        {"name": "norm-clipping", "threshold": 0.1},
    ]
    for choice in [*({"name": name} for name in plain), *wrapped]:
        yield Case(f"rule {spelled(choice)} of rows", rule(choice), quick=len(choice) == 1)
        for attack, share in (("ipm", 1.0), ("lie", 0.5)):
            name = f"rule {spelled(choice)} in fedavg, attack {attack}, participation {share:g}"
            quick = len(choice) == 1 and attack == "ipm"
            settings = {"attack": attack, "participation": share}
            yield Case(name, run(method={"name": "fedavg", "rule": choice}, **settings), quick)
    for method, choice in itertools.product(("ditto", "fedrod"), [{"name": name} for name in plain]):
        name = f"rule {spelled(choice)} in {method}"
        yield Case(name, run(method={"name": method, "rule": choice}, attack="min-max"))


def detection() -> Iterator[Case]:
    for detector in detectors.names():
        for method in ("fedavg", "fedcap", HARDENED, "ditto", "fltrust", "fedfomo"):
            for attack in (STRONG, {"name": "sign-flipping", "scale": 20.0}, "frame", "min-max"):
                quick = method == "fedavg" and attack is STRONG
                called = f"detector {detector} in {spelled(method)}, attack {spelled(attack)}"
                chosen = {**tables(method), "detectors": [detector]}
                yield Case(called, run(method=chosen, attack=attack), quick)
    several = [["norm", "direction"], [{"name": "norm", "limit": 0.3}], detectors.names()]
    policies = [
        "strikes",
        {"name": "strikes", "strikes": 2},
        "evidence",
        {"name": "evidence", "chance": 0.05},
    ]
    for found, policy in itertools.product(several, policies):
        for method, attack in itertools.product(("fedavg", "fedcap"), (STRONG, "min-max")):
            names = "+".join(map(spelled, found))
            called = f"detectors {names}, policy {spelled(policy)}, {method}, attack {spelled(attack)}"
            chosen = {"name": method, "detectors": found, "policy": policy}
            yield Case(called, run(method=chosen, attack=attack, participation=0.75, rounds=4))


def options_of_methods() -> Iterator[Case]:
    fedcap_options: list[dict[str, Any]] = [
        {"alpha": "auto"}, {"alpha": 0.0}, {"alpha": 10.0}, {"alpha": 50.0},
        {"phi": 0.0}, {"phi": 0.5}, {"phi": 1.0},
        {"lambda_": 0.0}, {"lambda_": 0.1}, {"lambda_": 3.0},
        {"t_norm": 0.2}, {"t_norm": 0.3, "policy": {"name": "strikes", "strikes": 2}},
        {"similarity": "last-layer"}, {"similarity": "last-layer", "calibrate": False},
        {"customise": False}, {"calibrate": False}, {"personalise": False}, {"detect": False},
        {"customise": False, "personalise": False}, {"calibrate": False, "t_norm": 0.3},
        {"customise": False, "calibrate": False, "personalise": False, "detect": False},
        {"policy": "evidence"}, {"detectors": ["norm", "robust-norm", "collusion", "direction"]},
    ]  # fmt: skip
    for preset, options, share in itertools.product(("paper", "hardened"), fedcap_options, (1.0, 0.5)):
        called = f"{preset}, {spelled({'name': 'fedcap', **options})}, participation {share:g}"
        method = {"name": "fedcap", "preset": preset, **options}
        yield Case(called, run(method=method, attack="min-max", participation=share, rounds=4))
    others: list[dict[str, Any]] = [
        {"name": "ditto", "lambda_": 0.0}, {"name": "ditto", "lambda_": 2.0},
        {"name": "fedfomo", "models": 2}, {"name": "fedfomo", "models": 3, "explore": 1.0, "decay": 0.0},
        {"name": "fedfomo", "validation": 0.5, "explore": 0.0}, {"name": "fedfomo", "models": 2, "seed": 4},
        {"name": "fedrod", "head": "5"}, {"name": "fedrod", "head": "nowhere"},
    ]  # fmt: skip
    for method, attack in itertools.product(others, ("none", "ipm")):
        yield Case(f"method {spelled(method)}, attack {attack}", run(method=method, attack=attack, rounds=4))


def settings() -> Iterator[Case]:
    everybody = [*methods.names(), HARDENED]
    training: list[dict[str, Any]] = [
        {"momentum": 0.9}, {"weight_decay": 0.01}, {"clip": 0.5}, {"decay": 0.5}, {"drop_last": False},
        {"shuffle": False}, {"batch_size": 7, "epochs": 2}, {"batch_size": 100},
        {"momentum": 0.5, "weight_decay": 0.05, "clip": 0.2, "decay": 0.9, "drop_last": False},
    ]  # fmt: skip
    for method, options in itertools.product(everybody, training):
        called = f"training {spelled({'name': '', **options})}, {spelled(method)}"
        yield Case(called, run(method=method, attack="none", training=options, participation=0.75))
    more: list[dict[str, Any]] = [
        {"holdout": 0.25}, {"seed": 1}, {"seed": 12345, "participation": 0.3}, {"eval_every": 2, "rounds": 5},
        {"checkpoint_every": 2}, {"assumed": 0.4}, {"assumed": 0.0}, {"malicious": 0.4}, {"malicious": 0.0},
        {"rounds": 8, "participation": 0.4}, {"training": {"lr": 1e4}},
    ]  # fmt: skip
    for method, given in itertools.product(("fedavg", "fedcap", HARDENED, "fltrust"), more):
        called = f"settings {spelled({'name': '', **given})}, {spelled(method)}"
        yield Case(called, run(**{"method": method, "attack": "ipm", **given}))
    partitions: list[Any] = [
        "iid", "groups", {"name": "groups", "dominant": 0.8}, "pathological",
        {"name": "pathological", "classes_per_client": 3, "sharing": "blocks"}, "dirichlet",
        {"name": "dirichlet", "beta": 0.2, "smallest": 6}, "natural",
    ]  # fmt: skip
    for partition, samples in itertools.product(partitions, (40, "all")):
        dataset = {"partition": partition, "samples": samples}
        called = f"partition {spelled(partition)}, samples {samples}"
        for method in ("fedavg", "fltrust"):
            yield Case(f"{called}, {method}", run(method=method, dataset=dataset, rounds=1))
    for size in (2, 9, 20):
        dataset = {"clients": size, "samples": 30, "train_share": 0.5}
        yield Case(f"{size} clients", run(method="fedcap", dataset=dataset, attack="ipm"))


def data_of_ones_own() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(240, 6)).astype(np.float32)
    y, client = np.arange(240) % 3, np.repeat([f"user {k}" for k in range(6)], 40)
    pixels = rng.integers(0, 256, size=(160, 8, 8), dtype=np.uint8)
    given: dict[str, dict[str, Any]] = {
        "owners": {"x": x, "y": y, "client": client},
        "natural, three of six": {"x": x, "y": y, "client": client, "partition": "natural", "clients": 3},
        "standardised": {"x": x, "y": y, "client": client, "standardise": True},
        "test flags": {"x": x, "y": y, "clients": 4, "test": np.arange(240) % 4 == 0},
        "pixels": {"x": pixels, "y": np.arange(160) % 4, "clients": 4},
        "like digits": {"x": pixels, "y": np.arange(160) % 10, "like": "digits", "clients": 4},
    }
    for name, dataset in given.items():
        for method in ("fedavg", "fedcap", "fltrust"):
            play = arrays(dataset, method)
            yield Case(f"arrays, {name}, {method}", play)
    yield Case("file .npz", from_file("npz", x, y, client))
    yield Case("file .csv", from_file("csv", x, y, client))


def arrays(dataset: Mapping[str, Any], method: str) -> Play:
    def play(folder: Path) -> Items:
        given = {**SETTINGS, "dataset": dict(dataset), "method": method, "rounds": 2}
        Experiment(**given).run(out=folder / "run")
        return of_run(folder / "run")

    return play


def from_file(ending: str, x: np.ndarray, y: np.ndarray, client: np.ndarray) -> Play:
    def play(folder: Path) -> Items:
        path = folder / f"mine.{ending}"
        if ending == "npz":
            np.savez(path, x=x, y=y, client=client)
        else:
            rows = (",".join([*map(repr, map(float, row)), str(label), who])
                    for row, label, who in zip(x, y, client, strict=True))  # fmt: skip
            path.write_text("\n".join(["a,b,c,d,e,f,label,client", *rows]) + "\n")
        given = {**SETTINGS, "dataset": str(path), "method": "fedcap", "rounds": 2}
        Experiment(**given).run(out=folder / "run")
        return of_run(folder / "run")

    return play


SHAPES: dict[str, tuple[int, ...]] = {
    "cnn-cifar10": (3, 32, 32),
    "cnn-emnist": (1, 28, 28),
    "cnn-wisdm": (3, 1, 200),
    "resnet18": (3, 16, 16),
}
"""The inputs of networks that are not made for 8×8 pixels."""


def networks() -> Iterator[Case]:
    for model in json.loads(command("list", "--json"))["models"]:
        if model not in SHAPES:
            for method in ("fedavg", "fedcap", "fedrod"):
                yield Case(f"network {model}, {method}", run(model=model, method=method, attack="ipm"))
        else:
            for method in ("fedavg",) if model == "resnet18" else ("fedavg", "fedcap", "fedrod"):
                yield Case(f"network {model}, {method}", run_network(model, SHAPES[model], method))
    for model in ("linear", "normed"):
        for method in ("fedavg", "fedcap", "fedrod", HARDENED):
            name = f"network of the user's own, {model}, {spelled(method)}"
            yield Case(name, run(model=f"same_bits_own:{model}", method=method, attack="min-max"))


def run_network(model: str, shape: tuple[int, ...], method: str) -> Play:
    def play(folder: Path) -> Items:
        x = np.random.default_rng(0).normal(size=(24, *shape)).astype(np.float32)
        dataset = {"x": x, "y": np.arange(24) % 10, "clients": 2}
        training = {"lr": 0.01, "epochs": 1, "batch_size": 4}
        given = {"dataset": dataset, "model": model, "method": method, "rounds": 1, "training": training}
        Experiment(**given, workers=1).run(out=folder / "run")
        return of_run(folder / "run")

    return play


def lives() -> Iterator[Case]:
    """Yield runs that are interrupted, resumed, extended, changed by hand, read, or played by two workers."""
    everybody = [*methods.names(), HARDENED]
    for method in everybody:
        given = {"method": method, "attack": "mimic", "participation": 0.6, "rounds": 4}
        called = spelled(method)
        yield Case(f"resumed after round 2, {called}", resumed(2, **given), quick=method == "fedcap")
        yield Case(f"resumed before a checkpoint, {called}", resumed(3, checkpoint_every=2, **given))
        yield Case(f"extended, {called}", extended(method=method, attack=STRONG))
        back = {"method": method, "attack": "min-max", "rounds": 4}
        yield Case(f"removed by hand, {called}", by_hand(99, **back))
        yield Case(f"removed by hand and readmitted, {called}", by_hand(2, **back), quick=method == HARDENED)
        yield Case(f"in memory, {called}", in_memory(method=method, attack="ipm", participation=0.5))
        if method in ("fedcap", "fedfomo", "fedrod", HARDENED):
            given = {"method": method, "attack": "min-max", "participation": 0.75}
            yield Case(f"two workers, {called}", two_workers(**given))
        played = read_back(method=method, attack="ipm", participation=0.5)
        yield Case(f"read back, {called}", played, quick=method == "fedcap")
    for attack in attack_choices():
        given = {"method": HARDENED, "attack": attack, "participation": 0.75}
        yield Case(f"resumed after round 2, attack {attack['name']}", resumed(2, **given))
    given = {"method": "fedcap", "attack": "ipm", "participation": 0.5}
    yield Case("command run --resume", resumed(2, cli=True, **given))
    yield Case("command run", command_run, quick=True)
    yield Case("command compare", command_compare)
    yield Case("grid", grid)


def every_case() -> Iterator[Case]:
    yield Case("names of all things", listing, quick=True)
    yield Case("published digests", published(packed=True))
    yield Case("published digests, single files", published(packed=False), quick=True)
    yield Case("equations", equations, quick=True)
    for part in (matrix_of_methods, options_of_attacks, rules, detection, options_of_methods, settings,
                 data_of_ones_own, networks, lives):  # fmt: skip
        yield from part()


# --- The process


def memory_folder() -> str | None:
    """Return a folder in memory, where writes to disk take no time; none if there is no such folder."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def play_all(cases: Iterable[Case], say: Callable[[Any], None]) -> None:
    for case in cases:
        folder = Path(tempfile.mkdtemp(dir=memory_folder(), prefix="same-bits-"))
        try:
            items = attempt(lambda case=case, folder=folder: case.play(folder))
        finally:
            shutil.rmtree(folder)
        say({"case": case.name, "items": items})


def main() -> None:
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    sys.stdout = sys.stderr
    tree = Path(fedcap.__file__).parents[2]

    def say(value: Any) -> None:
        print(json.dumps(value, ensure_ascii=False), file=out, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "same_bits_own.py").write_text(OWN)
        sys.path[:0] = [folder, str(tree / "examples")]
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
        importlib.invalidate_caches()
        cases = list(every_case())
        names = [case.name for case in cases]
        assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)
        quick = [case.name for case in cases if case.quick]
        say({"package": fedcap.__file__, "cases": names, "quick": quick})
        wanted = set(json.loads(sys.stdin.readline()))
        play_all((case for case in cases if case.name in wanted), say)


if __name__ == "__main__":
    main()
