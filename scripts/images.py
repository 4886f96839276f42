"""Pins the images of others by digest: ``deploy/images.toml`` says which, and all files that name one follow it.

```console
$ python -m scripts.images write      # put what images.toml says into all files that name an image
$ python -m scripts.images pin        # ask the registry first, and write its digests into images.toml
$ python -m scripts.images check      # exit code 1 if a file, or the registry, says something else; changes nothing
```

The registry is asked by crane, skopeo or docker buildx, whichever is there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

LIST: Final = Path("deploy", "images.toml")

NAMED_IN: Final = (
    Path("deploy", "docker", "Dockerfile"),
    Path("deploy", "compose", "compose.yml"),
    Path("deploy", "compose", "zones.yml"),
    Path("deploy", "kubernetes", "base", "haproxy.yaml"),
)
"""The files that name images, from the top of the repository."""

DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")

TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "crane": ("crane", "digest", "{}"),
    "skopeo": ("skopeo", "inspect", "--format", "{{{{.Digest}}}}", "docker://{}"),
    "docker": ("docker", "buildx", "imagetools", "inspect", "--format", "{{{{.Manifest.Digest}}}}", "{}"),
}
"""What prints the digest of a tag's index; the first one that is there is taken."""

PATIENCE: Final = 60.0
"""Seconds that a registry may take for one answer."""


class ImagesError(Exception):
    """It cannot be done; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image of others.

    Attributes:
        key: its table in ``images.toml``.
        name: in the registry.
        tag: which of them.
        digest: of the index behind the tag; empty if it is not known.
        known_from: where the digest is from; empty if from the registry.
    """

    key: str
    name: str
    tag: str
    digest: str
    known_from: str = ""

    @property
    def tagged(self) -> str:
        """Name and tag."""
        return f"{self.name}:{self.tag}"

    @property
    def reference(self) -> str:
        """Name, tag and digest, as files name it."""
        return f"{self.tagged}@{self.digest}" if self.digest else self.tagged

    @property
    def pattern(self) -> re.Pattern[str]:
        """Finds its name with whatever tag and digest."""
        return re.compile(rf"(?:(?<=image: )|(?<=FROM )){re.escape(self.name)}:[\w.-]+(?:@sha256:[0-9a-f]*)?")


def read(root: Path) -> tuple[Image, ...]:
    """Read the list.

    Raises:
        ImagesError: a digest in it is none.
    """
    images = tuple(Image(key, **facts) for key, facts in tomllib.loads((root / LIST).read_text("utf-8")).items())
    for each in images:
        if each.digest and not DIGEST.fullmatch(each.digest):
            raise ImagesError(f"{LIST}: the digest of [{each.key}] is none: {each.digest!r}")
    return images


def named_otherwise(root: Path, images: Sequence[Image]) -> Iterator[str]:
    """Tell which files name an image in another way than the list."""
    for path in NAMED_IN:
        text = (root / path).read_text("utf-8")
        for image in images:
            for found in image.pattern.findall(text):
                if found != image.reference:
                    yield f"{path} names {found}, and {LIST} says {image.reference}"


def write(root: Path, images: Sequence[Image]) -> None:
    """Have all files name images as the list does."""
    for path in NAMED_IN:
        text = old = (root / path).read_text("utf-8")
        for image in images:
            text = image.pattern.sub(image.reference, text)
        if text != old:
            (root / path).write_text(text, "utf-8")


def resolve(image: Image) -> str:
    """Ask the registry for the digest of a tag.

    Raises:
        ImagesError: there is no tool to ask with, or no answer, or none that is a digest.
    """
    tool = next((command for name, command in TOOLS.items() if shutil.which(name)), None)
    if tool is None:
        raise ImagesError(f"install one of {', '.join(TOOLS)}: they ask a registry what a tag is")
    command = [part.format(image.tagged) for part in tool]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)  # noqa: S603
    except subprocess.TimeoutExpired as late:
        raise ImagesError(f"{' '.join(command)}: no answer within {PATIENCE:g} s") from late
    answer = asked.stdout.strip()
    if asked.returncode != 0 or not DIGEST.fullmatch(answer):
        said = (asked.stderr.strip() or answer).splitlines()
        raise ImagesError(f"{' '.join(command)}: {said[-1] if said else 'no answer'}")
    return answer


def pin(root: Path, images: Sequence[Image]) -> None:
    """Write into the list what the registry says of each tag; nothing, if it does not say it of all.

    Raises:
        ImagesError: see ``resolve``.
    """
    digests = {image.key: resolve(image) for image in images}
    text = (root / LIST).read_text("utf-8")
    for key, digest in digests.items():
        head, table, rest = text.partition(f"[{key}]\n")
        own, bracket, others = rest.partition("\n[")
        own = re.sub(r'(?m)^digest = ".*"$', f'digest = "{digest}"', own)
        # From the registry itself, which needs no word.
        own = re.sub(r'(?m)^known_from = ".*"\n?', "", own)
        text = head + table + own + bracket + others
    (root / LIST).write_text(text, "utf-8")


def complaints(root: Path, images: Sequence[Image]) -> Iterator[str]:
    """Tell what is not as the list, or the registry, says.

    Raises:
        ImagesError: see ``resolve``.
    """
    yield from named_otherwise(root, images)
    for image in images:
        if not image.digest:
            yield f"{image.tagged} has no digest: run `python -m scripts.images pin`"
        elif (there := resolve(image)) != image.digest:
            yield f"{image.tagged} is {there} in the registry, and {image.digest} in {LIST}: moved there, or wrong here"


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Do what the first argument says; returns the exit code."""
    try:
        match arguments:
            case ["write"]:
                write(root, read(root))
            case ["pin"]:
                pin(root, read(root))
                write(root, read(root))
            case ["check"]:
                found = list(complaints(root, read(root)))
                sys.stderr.writelines(f"{each}\n" for each in found)
                return int(bool(found))
            case _:
                sys.stderr.write("usage: python -m scripts.images write|pin|check\n")
                return 2
    except ImagesError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
