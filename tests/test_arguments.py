"""What can be said on the command line: every command has its options, and what they cannot be ends in one line."""

import pytest

from bert_jax import cli

PLACES = ("--workdir", "--model", "--a", "--b", "--store", "--source", "--output", "--save")
PLACES += ("--profile", "--add-words", "--batches")
OTHERS = {"--config": "demo", "--topology": "v5e:2x2", "--step": "1"}


def test_every_command_has_its_options():
    """And no option twice: argparse would refuse it."""
    parser = cli.parser(cli.COMMANDS)
    (commands,) = (action for action in parser._actions if action.dest == "command")
    assert list(commands.choices) == list(cli.COMMANDS)
    for name, command in commands.choices.items():
        words = {(action.option_strings or [action.dest])[-1] for action in command._actions}
        assert words - {"--help"} == {one.name for one in cli.load_command(name).OPTIONS}


def line(command: str, name: str) -> list[str]:
    """A command with nothing in the place of one option, and all others that it cannot do without."""
    words = [command]
    for one in cli.load_command(command).OPTIONS:
        if one.name == name:
            words += [name, ""]
        elif one.settings.get("required"):
            words += [one.name, OTHERS.get(one.name, "somewhere")]
    return words


@pytest.mark.parametrize(
    "command, name",
    [
        (command, one.name)
        for command in cli.COMMANDS
        for one in cli.load_command(command).OPTIONS
        if one.name in PLACES
    ],
)
def test_no_name_is_not_the_directory_one_is_in(command, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(line(command, name)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"{name}: expected a path" in error
    assert not list(tmp_path.iterdir())


def test_settings_are_taken_out_of_a_line():
    words = ["plan", "--config.a.b=1", "--json", "x", "--config.c", "2", "--", "--config.d=3"]
    rest, overrides = cli.split_overrides(words)
    assert rest == ["plan", "--json", "x", "--", "--config.d=3"]
    assert overrides == ["a.b=1", "c=2"]
