"""A site's directory: what a person edits, and what the site keeps to itself.

site.toml      what the site is called, where the server is, and its data
policy.toml    what the site agrees to
key, key.pub   who the site is; `key` never leaves it
ca.crt         whom it trusts
agreed/        the plans that it has agreed to, by their digests
state/         its own model and what it keeps between rounds;  audit.jsonl: what happened;  logs/
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedcap.errors import InputError, validation_message
from fedcap.federation.audit import AUDIT, Audit
from fedcap.federation.commented import commented
from fedcap.federation.plan import Plan
from fedcap.files import write_aside
from fedcap.runs import Named, read_toml

SITE, POLICY, AUTHORITY = "site.toml", "policy.toml", "ca.crt"


class SiteConfig(BaseModel):
    """site.toml: what the site is called, where the server is, and its data."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str
    """What people call the site."""
    server: Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):\d{1,5}$")]
    """Where the server is, as host:port."""
    dataset: Named
    """The site's data: anything that `fedcap run --dataset` takes, and its options."""
    client: str | None = None
    """Whose samples of the data set the site has; if not given, all of them."""
    seed: Annotated[int, Field(ge=0)] = 0
    """By this seed the samples are dealt out, and into training and test samples."""

    @classmethod
    def of(cls, content: Mapping[str, Any], where: str = SITE) -> Self:
        """Return the content of the file; a mistake is an `InputError` of one line."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise InputError(f"{where}: {validation_message(error)}") from None

    def text(self) -> str:
        """Return the content of the file, with a note at each entry."""
        return commented(self, "A site of a federation. Its samples and its own model stay in its hands.")


class SiteDirectory:
    """One site's directory."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.audit = Audit(self.directory / AUDIT)

    @classmethod
    def open(cls, directory: Path | str) -> Self:
        """Return the directory of a site; refuse any other."""
        made = cls(directory)
        if not (made.directory / SITE).is_file():
            hint = "is the operator's" if (made.directory / "federation.toml").exists() else "is no site's"
            raise InputError(f"{directory} {hint} directory; fedcap federate enrol makes one for a site")
        return made

    @property
    def config(self) -> SiteConfig:
        """What site.toml says now."""
        path = self.directory / SITE
        return SiteConfig.of(read_toml(path), str(path))

    @property
    def authority(self) -> Path:
        """The certificate of the authority that the site trusts."""
        return self.directory / AUTHORITY

    @property
    def agreed(self) -> Path:
        """The folder of the plans that the site has agreed to."""
        return self.directory / "agreed"

    @property
    def state(self) -> Path:
        """The folder of what the site keeps between rounds."""
        return self.directory / "state"

    @property
    def logs(self) -> Path:
        """The folder of logs."""
        return self.directory / "logs"

    @property
    def wish(self) -> Path:
        """The file that is there while the site wishes for a model made for it."""
        return self.directory / "wish"

    def agree(self, plan: Plan) -> Path:
        """Keep a plan as agreed to; return its file."""
        self.agreed.mkdir(parents=True, exist_ok=True)
        path = self.agreed / f"{plan.digest}.toml"
        if not path.exists():
            write_aside(path, plan.text())
            self.audit.write("plan", by="site", plan=plan.digest, bundle=plan.bundle)
        return path

    def plans(self) -> dict[str, Plan]:
        """Return the plans that the site has agreed to, by their digests; a changed file is not agreed to."""
        found: dict[str, Any] = {}
        for path in sorted(self.agreed.glob("*.toml")):
            plan = Plan.read(path)
            if plan.digest == path.stem:
                found[plan.digest] = plan
        return found
