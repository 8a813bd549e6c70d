"""Where commands write: what cannot be written to is told at once, in one line that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rag_app.cli import app
from rag_app.clip import trainings as clip
from rag_app.errors import ConfigError
from rag_app.out_folder import LOCK, check_file, own_folder, refuse_foreign
from rag_app.sweep import run as sweep
from rag_app.training.folder import TRAIN
from tests.config_files import CONFIGS


@pytest.mark.parametrize(
    "command",
    [
        ["train", "train-cpu.toml"],
        ["sweep", "train-cpu.toml"],
        ["train-reader", "train-reader.toml"],
        ["train-clip", "clip-shapes.toml"],
        ["reproduce", "reproduce-cpu.toml"],
    ],
)
def test_a_wrong_out_is_told_before_anything_is_read(command: list[str], tmp_path: Path) -> None:
    """The data that these configurations name are not there, and nobody gets to look for them."""
    file = tmp_path / "q.toml"
    file.write_text("x")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("x")
    name, config = command
    for out, message in (
        (file, "q.toml is a file: name a folder to write to"),
        (file / "deeper/x", "q.toml is a file, so .*x cannot be a folder in it"),
        (Path("/proc/x"), r"/proc/x cannot be written to \(.+\): name another folder with --out"),
        (
            tmp_path / "mine",
            "mine is no folder of .*, and not empty",
        ),
    ):
        done = CliRunner().invoke(app, [name, str(CONFIGS / config), "--out", str(out)])
        assert isinstance(done.exception, ConfigError)
        with pytest.raises(ConfigError, match=message):
            raise done.exception
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("command", "there", "message"),
    [
        (
            ["train-clip", "clip-shapes.toml"],
            Path(sweep.TRAININGS, "cosine-0", TRAIN),
            "holds a sweep, not trainings of",
        ),
        (["train-clip", "clip-shapes.toml"], Path(sweep.RESULT), "holds a sweep, not trainings of two towers"),
        (
            ["sweep", "train-cpu.toml"],
            Path(clip.TRAININGS, "both-dot-0", clip.TRAINING),
            "holds trainings of .*, not a sweep",
        ),
        (["train", "train-cpu.toml"], Path(clip.RESULT), "holds trainings of two towers, not a training"),
    ],
)
def test_a_folder_of_another_command_is_named(command: list[str], there: Path, message: str, tmp_path: Path) -> None:
    (tmp_path / there).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / there).write_text("{}")
    done = CliRunner().invoke(app, [command[0], str(CONFIGS / command[1]), "--out", str(tmp_path)])
    assert isinstance(done.exception, ConfigError)
    with pytest.raises(ConfigError, match=message):
        raise done.exception


def test_a_file_that_cannot_be_written_is_told_before_mining(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text("{}")
    for out, message in (
        ("/proc/x.jsonl", r"/proc/x.jsonl cannot be written \(.+\): name another file for the mined pairs"),
        (str(tmp_path / "pairs.jsonl/x.jsonl"), r"x.jsonl cannot be written \(.+\)"),
        (str(tmp_path), "is a folder: name the file that the mined pairs go to"),
        (str(tmp_path / "pairs.jsonl"), "is the file that is read"),
    ):
        done = CliRunner().invoke(app, ["mine", str(tmp_path / "pairs.jsonl"), out])
        assert isinstance(done.exception, ConfigError)
        with pytest.raises(ConfigError, match=message):
            raise done.exception
    check_file(tmp_path / "new/out.jsonl", "the mined pairs")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_folder_is_held_and_left_as_it_was(tmp_path: Path) -> None:
    with own_folder(tmp_path / "a/b"):
        assert (tmp_path / "a/b" / LOCK).is_file()
        refuse_foreign(tmp_path / "a/b", (), "a training")
        with pytest.raises(ConfigError, match="another process is at work in"), own_folder(tmp_path / "a/b"):
            pass
    assert not (tmp_path / "a/b").exists()
    with own_folder(tmp_path / "a/b"):
        (tmp_path / "a/b/kept").write_text("x")
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["kept"]
