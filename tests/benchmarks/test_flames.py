"""Flame graphs: what is counted, what is left out, and that the pictures of the documentation are whole."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.flamegraph import FOLDER, LOADS
from benchmarks.flames import Flame, draw, parse, simplified, without_place

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("frame", "shown"),
    [
        ("send (/srv/x/gateway/adapters/connection.py:7)", "send (gateway/adapters/connection.py)"),
        ("run (/usr/lib/python3.11/asyncio/runners.py:118)", "run (asyncio/runners.py)"),
        ("pack (/home/me/venv/lib/python3.11/site-packages/redis/client.py)", "pack (redis/client.py)"),
        ("send (libc.so.6)", "send (libc.so.6)"),
        ("main (/home/me/secret/program.py:1)", "main (program.py)"),
        ("/home/me/thread", "thread"),
    ],
)
def test_frames_do_not_tell_where_files_lie(frame: str, shown: str) -> None:
    assert without_place(frame) == shown


def test_waiting_is_left_out_and_the_loop_is_the_beginning() -> None:
    loop = ["main (gateway/cli.py)", "Runner.run (asyncio/runners.py)"]

    assert simplified([*loop, "epoll_pwait (libc.so.6)"]) == ()
    assert simplified(["Thread.run (threading.py)", "Condition.wait (threading.py)", "0x7f (libc.so.6)"]) == ()
    assert simplified([*loop, "uv__run (loop.so)", "send (gateway/connection.py)", "send (libc.so.6)"]) == [
        "Runner.run (asyncio/runners.py)",
        "send (gateway/connection.py)",
        "send (libc.so.6)",
    ]


def test_samples_are_added_up_along_the_stacks() -> None:
    root = parse(["a (x.py);b (x.py) 3", "a (x.py) 1", "c (x.py) 2"])

    assert root.samples == 6
    assert root.callees["a (x.py)"].samples == 4
    assert root.callees["a (x.py)"].callees["b (x.py)"].samples == 3
    assert root.depth(least=1) == 3
    assert root.depth(least=4) == 2


@pytest.mark.parametrize("lines", [["no number"], ["a (x.py) many"], [], ["epoll_wait (libc.so.6) 5"]])
def test_what_is_no_profile_is_refused(lines: list[str]) -> None:
    with pytest.raises(ValueError, match=r"not a folded stack|no samples"):
        parse(lines)


def test_a_picture_is_drawn_to_scale_the_same_each_time() -> None:
    root = parse(["send (gateway/core/a.py) 75", "<lambda> (redis/b.py) 24", "rare (c.py) 1"])
    text = draw(root, "Who & what")
    boxes = {
        (group.findtext(f"{SVG}title") or "").split(" (")[0]: float(group.find(f"{SVG}rect").get("width"))  # type: ignore[union-attr,arg-type]
        for group in ET.fromstring(text).iter(f"{SVG}g")
    }

    assert text == draw(root, "Who & what")
    assert boxes["send"] == pytest.approx(3 * boxes["<lambda>"], rel=0.05)
    assert boxes["send"] + boxes["<lambda>"] + boxes["rare"] == pytest.approx(boxes["all: 100.0%"], abs=0.3)


def test_what_could_not_be_seen_is_left_out() -> None:
    root = Flame("all", 1_000, {"seen (a.py)": Flame("seen (a.py)", 999), "rare (a.py)": Flame("rare (a.py)", 1)})

    assert "seen" in draw(root, "t")
    assert "rare" not in draw(root, "t")


@pytest.mark.parametrize("name", LOADS)
def test_the_documentation_has_the_picture(name: str) -> None:
    file = FOLDER / LOADS[name].file(name)
    text = file.read_text()

    title = ET.fromstring(text).findtext(f"{SVG}text") or ""
    assert re.fullmatch(re.escape(LOADS[name].title) + r" \([\d,]+ samples\)", title)
    assert not re.search(r"\(/|/home|/tmp|/root|0x[0-9a-f]{6}", text)
    assert f"figures/{file.name})" in (FOLDER.parent / "performance.md").read_text()
    assert Path(file).stat().st_size < 100_000
