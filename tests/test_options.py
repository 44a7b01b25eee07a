"""A question is declared once: what is derived from its record says the same everywhere."""

import inspect
import re
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Literal

import click
import pytest
from click.testing import CliRunner
from running import every_command

import deltadex
from deltadex.cli import main
from deltadex.errors import RequestError
from deltadex.options import PROVISIONAL, Question, argument, option, options_of, question, record
from deltadex.questions.cluster import Cluster
from deltadex.questions.face.database import Database
from deltadex.questions.find_similar import FindSimilar
from deltadex.questions.terminal.command_line import command_with
from deltadex.questions.terminal.commands import GROUPS
from deltadex.service.api.schemas import fields_of
from deltadex.store import Filters

STABILITY = Path(deltadex.__file__).parent / "docs" / "stability.md"


@record
class Greeting(Question):
    """A greeting.

    It is polite.

    Returns:
        A sentence.
    """

    name: str = argument(help="Of whom.")
    times: int = option("-n", default=1, least=1, most=3, help="How often.")
    _: KW_ONLY
    loud: bool = option("--quietly", default=True, help="In a low voice.")
    ports: tuple[int, ...] = option(default=(1,), least=1, separated=True, help="Numbers.")

    def answer(self, db: object) -> str:
        return f"{self.name} {self.times} {self.loud} {self.ports}"


@record
class Tone(Question):
    """The tone of a greeting."""

    tone: Literal["warm", "cold"] = option(default="warm", help="Tone.")


class Face:
    greet = question(Greeting)


def greet(*arguments):
    @command_with(Greeting)
    def greeting(common, asked):
        click.echo(asked.answer(None))

    return CliRunner().invoke(greeting, arguments)


def test_a_call_has_the_names_signature_and_words_of_its_record():
    signature = inspect.signature(Face.greet)

    assert Face.greet.__qualname__ == "Face.greet"
    assert [*signature.parameters][1:] == [*inspect.signature(Greeting).parameters]
    assert signature.return_annotation is str
    assert Face().greet("ann", 2, loud=False) == "ann 2 False (1,)"
    assert inspect.getdoc(Face.greet).split("\n\n")[:3] == [
        "A greeting.",
        "It is polite.",
        "Args:\n    name: Of whom.\n    times: How often.\n    loud: In a low voice.\n"
        "    ports: Numbers.",
    ]


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((), {}, "missing a required argument: 'name'"),
        (("ann",), {"time": 2}, "unexpected keyword argument 'time'"),
    ],
)
def test_a_wrong_call_is_told_of_by_the_methods_name(arguments, settings, message):
    with pytest.raises(TypeError, match=rf"Face\.greet\(\) .*{message}"):
        Face().greet(*arguments, **settings)


def test_a_command_has_the_same_options():
    assert greet("ann").stdout == "ann 1 True (1,)\n"
    assert greet("ann", "-n", "3", "--quietly", "--ports", "8,9").stdout == "ann 3 False (8, 9)\n"
    assert "1<=x<=3" in greet("--help").stdout


@pytest.mark.parametrize("name", options_of(Filters))
def test_a_filter_is_declared_once_for_the_command_the_call_and_the_request(name):
    said = options_of(Filters)[name][1].help
    (shown,) = (one for one in main.commands["find-similar"].params if one.name == name)
    annotation, _ = fields_of(FindSimilar)[name]

    assert shown.help == said == annotation.__metadata__[0].description
    assert name in inspect.signature(Database.find_similar).parameters
    assert said in " ".join(Database.find_similar.__doc__.split())


@pytest.mark.parametrize("times", [0, 4])
def test_limits_hold_in_a_command_and_a_call(times):
    assert greet("ann", "-n", str(times)).exit_code == 2
    with pytest.raises(RequestError, match="times must be at"):
        Face().greet("ann", times)


def test_a_value_that_is_no_choice_is_refused_with_the_choices():
    with pytest.raises(RequestError, match="tone must be one of warm, cold; got 'hot'"):
        Tone("hot")
    with pytest.raises(RequestError, match="unknown_share must be at most 1"):
        Cluster(unknown_share=2.0)


def test_every_command_is_in_one_group_and_help_shows_the_groups_in_order():
    shown = CliRunner().invoke(main, ["--help"]).stdout

    assert sorted(main.commands) == sorted(name for names in GROUPS.values() for name in names)
    places = [shown.index(f"\n{group.capitalize()}:\n") for group in GROUPS]
    assert places == sorted(places)


@pytest.mark.skipif(not STABILITY.exists(), reason="not run from a checkout")
def test_what_is_provisional_is_said_where_it_is_used_and_in_one_list():
    provisional = {
        " ".join(path)
        for path, command in every_command()
        if PROVISIONAL in " ".join((command.help or "").split())
    }
    listed = re.search(
        r"^Provisional commands: ([^.]+)\.$", STABILITY.read_text("utf-8"), re.MULTILINE
    )

    assert provisional == set(re.findall(r"`([^`]+)`", listed[1]))
    assert PROVISIONAL in Database.trace.__doc__
    assert PROVISIONAL not in Database.find_similar.__doc__
