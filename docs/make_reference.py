"""Writes reference.md: every configuration key from the structs that decode it, every command from its options.

    python docs/make_reference.py [--check]

Nothing is written here by hand but the headings: a key's meaning stands in the docstring of its struct, a command's in
its help. A key without an explanation is an error.
"""

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from hushgrad.accountant import commands as accountant_commands
from hushgrad.cli import entry
from hushgrad.client import __main__ as client_main
from hushgrad.client.config import ClientConfig, EvaluatorConfig
from hushgrad.server import commands as server_commands
from hushgrad.server.config import ServerConfig
from hushgrad.wire.terms_file import TermsFile
from msgspec import inspect as msgspec_inspect

PAGE = Path(__file__).with_name("reference.md")
FILES: dict[str, type[msgspec.Struct]] = {
    "terms.toml": TermsFile,
    "server.toml": ServerConfig,
    "client.toml": ClientConfig,
    "evaluator.toml": EvaluatorConfig,
}
PROGRAMS: dict[str, click.Command] = {
    "hushgrad": entry.group,
    "hushgrad-server": server_commands.group,
    "hushgrad-client": client_main.main,
    "hushgrad-accountant": accountant_commands.commands,
}
HEAD = """\
# Reference

Every configuration key and every command, written by `make docs` from the code. `hushgrad new` writes these files with
comments, for your data and your budget. Unknown keys are errors. Relative paths are relative to the file that they
stand in.
"""
ENVIRONMENT = """\
## Environment

| variable | meaning |
| --- | --- |
"""
EXIT_CODES = """\
## Exit codes

| code | meaning |
| --- | --- |
| 0 | done |
| 1 | failed otherwise |
| 2 | bad input; nothing was changed |
| 3 | the privacy budget does not allow it |
| 4 | the server was not reached |
| 5 | a conflict that needs a person |
"""


def page() -> str:
    """Returns the whole page."""
    parts = [HEAD]
    for name, struct in FILES.items():
        parts += _file(name, struct)
    variables: dict[str, set[str]] = {}
    commands = []
    for name, command in PROGRAMS.items():
        commands += list(_commands(name, command, variables))
    rows = [f"| `{variable}` | {', '.join(sorted(options))} |" for variable, options in sorted(variables.items())]
    home = "| `HUSHGRAD_HOME` | folder with the register of ledgers on this machine; else `~/.local/state/hushgrad` |"
    parts += [ENVIRONMENT + "\n".join(sorted([home, *rows])) + "\n", *commands, EXIT_CODES]
    return "\n".join(parts)


def _file(name: str, struct: type[msgspec.Struct]) -> Iterator[str]:
    yield f"## {name}\n\n{_table(struct)}"
    for path, inner in _tables(struct, ""):
        yield f"### `[{path}]` of {name}\n\n{_table(inner)}"


def _tables(struct: type[msgspec.Struct], prefix: str) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Yields the tables below a struct, with their paths in the file."""
    for field in _fields(struct):
        inner, repeated = _struct_in(field.type)
        if inner is not None:
            path = prefix + field.encode_name
            yield f"[{path}]" if repeated else path, inner
            yield from _tables(inner, f"{path}.")


def _table(struct: type[msgspec.Struct]) -> str:
    """Returns one table of keys under the first sentences of the struct's docstring."""
    summary, meanings = _docstring(struct)
    lines = [_plain(summary), "", "| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for field in _fields(struct):
        name = field.encode_name
        if name not in meanings:
            raise SystemExit(f"{struct.__name__} has no explanation of {name} under Attributes: in its docstring")
        kind, default = _cell(f"`{_type(field.type)}`"), _cell(_default(field))
        lines.append(f"| `{name}` | {kind} | {default} | {_cell(meanings[name])} |")
    return "\n".join(lines) + "\n"


def _fields(struct: type[msgspec.Struct]) -> tuple[msgspec_inspect.Field, ...]:
    info = msgspec_inspect.type_info(struct)
    assert isinstance(info, msgspec_inspect.StructType)
    return info.fields


def _docstring(struct: type[msgspec.Struct]) -> tuple[str, dict[str, str]]:
    """Returns what stands before "Attributes:", and the meaning of each name under it. `a, b: text` explains both."""
    before, _, after = inspect.cleandoc(struct.__doc__ or "").partition("\nAttributes:\n")
    meanings: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", textwrap.dedent(after)):
        names, _, text = block.partition(":")
        meanings |= {name.strip(): " ".join(text.split()) for name in names.split(",")}
    return before.strip(), meanings


def _struct_in(kind: msgspec_inspect.Type) -> tuple[type[msgspec.Struct] | None, bool]:
    """Returns the struct that a field holds, if any, and whether it holds a list of them."""
    if isinstance(kind, msgspec_inspect.StructType):
        return kind.cls, False
    if isinstance(kind, msgspec_inspect.ListType):
        return _struct_in(kind.item_type)[0], True
    if isinstance(kind, msgspec_inspect.UnionType):
        return next((found for one in kind.types if (found := _struct_in(one))[0] is not None), (None, False))
    return None, False


def _type(kind: msgspec_inspect.Type) -> str:
    match kind:
        case msgspec_inspect.StructType():
            return "table"
        case msgspec_inspect.ListType() | msgspec_inspect.VarTupleType():
            return f"list of {_type(kind.item_type)}"
        case msgspec_inspect.DictType():
            return f"table of {_type(kind.value_type)}"
        case msgspec_inspect.UnionType():
            return " or ".join(_type(one) for one in kind.types if not isinstance(one, msgspec_inspect.NoneType))
        case msgspec_inspect.LiteralType():
            return " or ".join(f'"{value}"' for value in kind.values)
        case msgspec_inspect.EnumType():
            return " or ".join(f'"{member.value}"' for member in kind.cls)
        case msgspec_inspect.StrType():
            return "text"
        case msgspec_inspect.BoolType():
            return "true or false"
        case msgspec_inspect.IntType():
            return "integer" + _bounds(kind)
        case msgspec_inspect.FloatType():
            return "number" + _bounds(kind)
        case _:
            raise SystemExit(f"no name for the type {kind}")


def _bounds(kind: msgspec_inspect.IntType | msgspec_inspect.FloatType) -> str:
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    found = [f"{sign} {value:g}" for key, sign in signs.items() if (value := getattr(kind, key)) is not None]
    return f" {' and '.join(found)}" if found else ""


def _default(field: msgspec_inspect.Field) -> str:
    if field.required:
        return "must be given"
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    if value is None or value == "" or isinstance(value, msgspec.Struct):
        return "" if not isinstance(value, msgspec.Struct) else "the table's"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _plain(text: str) -> str:
    """Keeps Markdown from reading a formula's star or a smaller-than sign as its own, outside of code."""
    parts = text.split("`")
    parts[::2] = [part.replace("*", "\\*").replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def _commands(name: str, command: click.Command, variables: dict[str, set[str]]) -> Iterator[str]:
    """Yields a section for a program and each of its verbs; notes which variables set which options."""
    context = click.Context(command, info_name=name)
    if isinstance(command, click.Group):
        if " " not in name:
            yield f"## `{name}`\n\n{_help(command)}\n"
        for verb in command.list_commands(context):
            found = command.get_command(context, verb)
            if found is not None:
                yield from _commands(f"{name} {verb}", found, variables)
        return
    pieces = " ".join(command.collect_usage_pieces(context))
    lines = [f"### `{name}`", "", f"`{name} {pieces}`", "", _help(command), ""]
    options = [one for one in command.params if isinstance(one, click.Option) and one.name != "help"]
    if options:
        lines += ["| option | meaning |", "| --- | --- |"]
    for option in options:
        record = option.get_help_record(context)
        if record is None:
            continue
        written, meaning = record
        lines.append(f"| `{written.replace('|', ' or ')}` | {_cell(meaning)} |")
        for variable in [option.envvar] if isinstance(option.envvar, str) else option.envvar or ():
            variables.setdefault(variable, set()).add(f"`{option.opts[0]}` of `{name.partition(' ')[0]}`")
    yield "\n".join(lines) + "\n"
    for verb, found in getattr(command, "verbs", {}).items():
        yield from _commands(f"{name} {verb}", found, variables)


def _help(command: click.Command) -> str:
    text = inspect.cleandoc(command.help or "").partition("\f")[0]
    # \b keeps the lines of a paragraph as they are.
    parts = re.split(r"\x08\n((?:.+\n?)+)", text)
    parts[::2] = [_plain(part) for part in parts[::2]]
    parts[1::2] = [f"```text\n{part.rstrip()}\n```\n" for part in parts[1::2]]
    return "".join(parts)


def main() -> int:
    """Writes the page; with --check, says whether it is as it would be written."""
    made = page()
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text() == made:
            return 0
        click.echo(f"{PAGE.name} is not what the code says; run: make docs", err=True)
        return 1
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
