"""The reference of all settings, written from the model, so that the documentation cannot lack one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ...access.config.auth import (
    ConsoleLoginSettings,
    FacadeClientSettings,
    FacadeSettings,
    IssuerSettings,
)
from ...access.config.policies import PolicySettings
from ...tools.browser.config import BrowserConfig
from ...tools.logins.config import BrowserLoginConfig, KeyConfig, LendRule, LoginCheck
from ...tools.upstream.config import (
    LoginSettings,
    Recipe,
    RecipeStep,
    SandboxSettings,
    UpstreamConfig,
)
from .mistakes import FLAGS
from .model import Config
from .ports import TlsSettings
from .sections import NotifySettings


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting in the reference."""

    key: str
    kind: str
    default: str
    text: str
    flag: str = ""


def reference() -> Iterator[tuple[str, list[Setting]]]:
    """Yield each table of the configuration file with its settings; "" is the top of the file."""
    sections = {
        name: info.annotation
        for name, info in Config.model_fields.items()
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)
    }
    top = [s for s in _settings(Config, "") if s.key not in (*sections, "services", "logins")]
    yield "", top
    for name, model in sections.items():
        yield name, list(_settings(model, f"{name}."))
        if name == "server":
            yield "server.tls", list(_settings(TlsSettings, "server.tls."))
        if name == "auth":
            yield "auth.console", list(_settings(ConsoleLoginSettings, "auth.console."))
            yield "auth.facade", list(_settings(FacadeSettings, "auth.facade."))
    yield "[auth.issuers]", list(_settings(IssuerSettings, ""))
    yield "[auth.facade.clients]", list(_settings(FacadeClientSettings, ""))
    yield "[notify]", list(_settings(NotifySettings, ""))
    yield "[policies]", list(_settings(PolicySettings, ""))
    yield "logins.NAME", list(_settings(KeyConfig, ""))
    yield "logins.SITE", list(_settings(BrowserLoginConfig, ""))
    yield "[logins.SITE.lend]", list(_settings(LendRule, ""))
    yield "logins.SITE.check", list(_settings(LoginCheck, ""))
    yield "services.browser", list(_settings(BrowserConfig, ""))
    yield "services.NAME", list(_settings(UpstreamConfig, ""))
    yield "services.NAME.login", list(_settings(LoginSettings, ""))
    yield "services.NAME.sandbox", list(_settings(SandboxSettings, ""))
    yield "services.NAME.recipe", list(_settings(Recipe, ""))
    yield "[services.NAME.recipe.save]", list(_settings(RecipeStep, ""))


def _settings(model: type[BaseModel], prefix: str) -> Iterator[Setting]:
    for name, info in model.model_fields.items():
        key = prefix + name
        yield Setting(
            key=key,
            kind=_kind(info.annotation),
            default=_default(info),
            text=info.description or "",
            flag=FLAGS.get(key, ""),
        )


def _kind(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " \\| ".join(f'"{value}"' for value in arguments)
    if origin is list:
        inner = arguments[0]
        return "list of tables" if _is_model(inner) else f"list of {_kind(inner)}"
    if origin is dict:
        return "table"
    if origin is tuple:
        return f"list of {_kind(arguments[0])}"
    if origin is not None and type(None) in arguments:
        return _kind(next(a for a in arguments if a is not type(None)))
    if origin is not None and origin is not Union and arguments:
        return _kind(arguments[0])
    if _is_model(annotation):
        return "table"
    names = {float: "number", int: "integer", bool: "boolean", str: "string", SecretStr: "string"}
    return names.get(annotation, "path")


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    if info.annotation is Config.model_fields["data"].annotation:
        return ""  # it depends on the machine; the text says how
    value = info.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined or isinstance(value, BaseModel):
        return ""
    if value in ("", {}):
        return ""
    if isinstance(value, float):
        return f"`{value:g}`" if value < 1e6 else f"`{value:.0f}`"
    return f"`{json.dumps(value, default=str)}`"


def _value(setting: Setting) -> str:
    """Return the default of a setting, with its other choices, or its kind where it has none or an empty one."""
    if setting.default in ("", "`[]`", "required"):
        needed = ", required" if setting.default == "required" else ""
        return setting.kind.replace(" \\|", ",") + needed
    choices = re.findall(r'"[^"]+"', setting.kind)
    others = [f"`{choice}`" for choice in choices if choice not in setting.default]
    return f"{setting.default} ({', '.join(others)})" if others else setting.default


def markdown() -> str:
    """Return the reference as the tables of docs/reference/configuration.md."""
    parts: list[str] = []
    for name, settings in reference():
        parts.append(
            f"### {f'`[{name}]`' if name else 'Top of the file'}".replace(" and ", "]` and `[")
        )
        lines = ["| key | default | meaning |", "| --- | --- | --- |"]
        for s in settings:
            key = s.key.removeprefix(f"{name}.")
            flag = f" Flag: `{s.flag}`." if s.flag else ""
            lines.append(f"| `{key}` | {_value(s)} | {s.text}{flag} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
