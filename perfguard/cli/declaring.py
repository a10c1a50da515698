"""How commands declare their options: together, under headings, with values that have units."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from perfguard.cli.mistakes import no_argument
from perfguard.errors import UsageError
from perfguard.units import format_ratio

F = TypeVar("F", bound=Callable[..., Any])


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Options as one decorator, in this order in the help."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def flag(*names: str, **fields: Any) -> Callable[[F], F]:
    """An option without a value."""
    return click.option(*names, is_flag=True, **fields)


class SectionedCommand(click.Command):
    """A command whose help lists its options under headings."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; an argument too many is answered by the option that takes it."""
        ctx.allow_extra_args = True
        if (rest := super().parse_args(ctx, args)) and not ctx.resilient_parsing:
            raise click.UsageError(no_argument(ctx, rest), ctx=ctx)
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section, in the order of its first option; options of none come last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in sorted(self.get_params(ctx), key=lambda each: not getattr(each, "section", "")):
            if (record := parameter.get_help_record(ctx)) is not None:
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def section(title: str, *options: Callable[[F], F]) -> Callable[[F], F]:
    """Options under a heading of the help of a `SectionedCommand`."""

    def decorate(function: F) -> F:
        before = len(getattr(function, "__click_params__", ()))
        function = together(*options)(function)
        for parameter in getattr(function, "__click_params__", ())[before:]:
            parameter.section = title
        return function

    return decorate


class RatioType(click.ParamType[float]):
    """`5%` or `0.05`."""

    name = "ratio"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The ratio; `2` is refused as a slip, `200%` is not."""
        if isinstance(value, float):
            return value
        try:
            return parse_percentage(param.opts[0] if param is not None else self.name, value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class SecondsType(click.ParamType[float]):
    """`300`, `90s`, `5m` or `2h`."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number of seconds."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(s|m|min|h)?\s*", value)
        if found is None:
            self.fail(f"{value!r} is no time; write it as 300, 90s, 5m or 2h", param, ctx)
        return float(found[1]) * {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600}[found[2]]


class Counts(click.ParamType[tuple[int, ...]]):
    """Whole numbers from 1, separated by commas."""

    name = "counts"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """`1,2,4` as numbers, each once, ascending."""
        texts = [text.strip() for text in value.split(",")]
        if not all(re.fullmatch("[1-9][0-9]{0,4}", text) for text in texts):
            self.fail(f"{value!r} is no list of numbers from 1; write it like 1,2,4", param, ctx)
        return tuple(sorted({int(text) for text in texts}))


def parse_percentage(option: str, text: str) -> float:
    """`2%` or `0.02` as a ratio; `2` is refused as a slip, `200%` is not. Raises UsageError: it is no ratio."""
    is_percent = text.strip().endswith("%")
    try:
        value = float(text.strip().removesuffix("%")) / (100 if is_percent else 1)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{option} {text!r} is no percentage above zero; write it as 2% or 0.02")
    if value >= 1 and not is_percent:
        raise UsageError(
            f"{option} {text!r} would be {format_ratio(value)}: {value:g} % is written {value:g}% or {value / 100:g}"
        )
    return value
