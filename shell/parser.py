"""Reads a command line with click. Imports nothing else that takes time, so that `--help` and `--version` answer at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

import click
from click.core import ParameterSource

from ..server.exit_codes import EXIT_CODES, USAGE
from ..server.printing import complain
from ..sessions.one_line import one_line
from ..sessions.wording import near_names
from .call.words import SHORT
from .command_line import CommandLine

PROGRAM = "statehold"


class ParserSetting(click.Option):
    """An option that every command accepts, before and after its name. The configuration checks its value."""


def options(
    table: Mapping[str, tuple[str, str]], kind: type[click.Option] = click.Option
) -> list[click.Option]:
    """Return the options of a table in call/words.py, with their short names."""
    return [
        kind(
            [name, *(short for short, long in SHORT.items() if long == name)],
            metavar=metavar or None,
            is_flag=not metavar,
            help=text,
        )
        for name, (metavar, text) in table.items()
    ]


class Command(click.Command):
    """A command with an example. Invoking it returns its CommandLine."""

    def __init__(self, name: str, text: str, example: str, *params: click.Parameter) -> None:
        super().__init__(name, params=list(params), help=text, **_COMMON)
        self.example = example

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_params(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_epilog(self.example, formatter)


class Group(click.Group):
    """A command with commands below it. `has_default`: it also does something without one."""

    def __init__(
        self,
        name: str,
        text: str,
        example: str,
        *params: click.Parameter,
        commands: Sequence[click.Command],
        has_default: bool = False,
    ) -> None:
        super().__init__(
            name,
            params=list(params),
            commands=commands,
            help=text,
            invoke_without_command=True,
            subcommand_metavar="[COMMAND]" if has_default else "ACTION",
            **_COMMON,
        )
        self.example = example
        self.has_default = has_default

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.help or "") for name, one in self.commands.items()])
        _write_params(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_epilog(self.example, formatter)


def _read(**_: Any) -> CommandLine | None:
    """Return the command line of the current command; None for a group whose command is read next."""
    ctx = click.get_current_context()
    if (
        isinstance(ctx.command, Group)
        and not ctx.command.has_default
        and not ctx.invoked_subcommand
    ):
        raise click.UsageError("the following arguments are required: ACTION", ctx)
    if ctx.invoked_subcommand:
        return None
    chain = [ctx]
    while (parent := chain[0].parent) is not None:
        chain.insert(0, parent)
    names = [one.info_name for one in chain[1:]] + [None, None]
    values: dict[str, Any] = {"command": names[0], "action": names[1]}
    for one in chain:
        values |= dict(_values(one))
    return CommandLine(**values)


_COMMON: dict[str, Any] = {
    "callback": _read,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 110},
}


def _values(ctx: click.Context) -> Iterator[tuple[str, Any]]:
    for param in ctx.command.params:
        assert param.name is not None
        value: Any = ctx.params[param.name]
        is_given = ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
        if isinstance(value, tuple):
            several = cast("tuple[Any, ...]", value)
            value = list(several) if is_given or isinstance(param, click.Argument) else None
        if is_given or not isinstance(param, ParserSetting):
            yield param.name, value


def walk(command: click.Command, path: str = PROGRAM) -> Iterator[tuple[str, Command | Group]]:
    """Yield a command and all commands below it in order, each with the words that name it."""
    assert isinstance(command, Command | Group)
    yield path, command
    if isinstance(command, Group):
        for name, child in command.commands.items():
            yield from walk(child, f"{path} {name}")


def parse(root: Group, words: Sequence[str]) -> CommandLine:
    """Read a command line. Ends with SystemExit after --help and after a mistake, which it explains in one line."""
    known_options = {option for _, command in walk(root) for option in _options(command)}
    path, command = PROGRAM, root
    for word in words:
        if word == "--":
            break
        name = word.split("=")[0]
        # click would first take the value behind an unknown option for a command, and complain about that.
        if name.startswith("--") and name not in known_options:
            own = {*_options(command), *_options(root)}
            _complain(f"there is no option {name}{_hint(name, own)}", path)
        if isinstance(command, Group) and word in command.commands:
            path, command = f"{path} {word}", command.commands[word]
    try:
        command_line = root.main(list(words), prog_name=PROGRAM, standalone_mode=False)
    except click.UsageError as error:
        _complain(_problem(error), error.ctx.command_path if error.ctx else PROGRAM)
    if not isinstance(command_line, CommandLine):
        raise SystemExit(command_line)
    return command_line


def _options(command: click.Command) -> list[str]:
    names = [option for param in command.params for option in param.opts]
    return [option for option in names if option.startswith("-")] + ["-h", "--help"]


def _problem(error: click.UsageError) -> str:
    """Return a mistake in our words, with the most similar valid word."""
    match error:
        case click.NoSuchOption():
            return f"there is no {error.option_name} here"
        case click.exceptions.NoSuchCommand():
            assert error.ctx is not None
            assert isinstance(error.ctx.command, Group)
            return _wrong_word(error.command_name, list(error.ctx.command.commands))
        case click.MissingParameter():
            assert error.param is not None
            return f"the following arguments are required: {error.param.human_readable_name}"
        case click.BadParameter(param=param) if param is not None:
            text = f"{error.message[:1].lower()}{error.message[1:].rstrip('.')}"
            return f"argument {param.opts[0]}: {text}"
        case _ if error.message.startswith("Got unexpected extra argument"):
            return f"there is no {error.message.rpartition('(')[2].rstrip(')').split()[0]} here"
        case _:
            text = error.format_message()
            return f"{text[:1].lower()}{text[1:].rstrip('.')}"


class Word(click.Choice[str]):
    """One of some words."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return _wrong_word(str(value), list(self.choices))


class Number(click.ParamType[int]):
    """A number in decimal digits, `least` or more."""

    name = "number"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not text.isdecimal() or int(text) < self._least:
            self.fail(f"should be a number from {self._least} on, found {text!r}", param, ctx)
        return int(text)


def _wrong_word(word: str, words: Sequence[str]) -> str:
    return f"there is no {word!r}{_hint(word, words)} ({', '.join(words)})"


def _hint(word: str, words: Iterable[str]) -> str:
    near = near_names(word, words, similarity=0.7)
    return f", did you mean {near[0]}?" if near else ""


def _complain(message: str, path: str) -> NoReturn:
    raise SystemExit(complain(f"{one_line(message)}; see {path} --help", USAGE))


def _write_params(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    params = command.get_params(ctx)
    options = [param for param in params if isinstance(param, click.Option)]
    own = [option for option in options if not isinstance(option, ParserSetting)]
    settings = [option for option in options if isinstance(option, ParserSetting)]
    for title, shown_options in (("Options", own), ("Settings", settings)):
        rows = [(spell(param), help_of(param)) for param in shown_options]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


def _write_epilog(example: str, formatter: click.HelpFormatter) -> None:
    codes = "\n".join(f"  {code:<4} {text}" for code, text in EXIT_CODES.items())
    formatter.write(f"\nExample:\n  {example}\n\nExit codes:\n{codes}\n")


def spell(param: click.Parameter) -> str:
    """Return an argument or an option as a user writes it, with the kind of its value."""
    words = [] if isinstance(param, click.Argument) else [", ".join(param.opts)]
    if isinstance(param.type, click.Choice):
        words.append("|".join(param.type.choices))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    elif param.metavar is not None:
        words.append(param.metavar)
    return f"{words[-1]} ..." if param.nargs == -1 else " ".join(words)


def help_of(param: click.Parameter) -> str:
    """Return the meaning of an argument or an option."""
    text: object = getattr(param, "help", None)
    return text if isinstance(text, str) else ""
