"""What a node reads when it starts: certificates, authorities, the key of the journal. One that is bad ends the start.

``gateway check-config`` reads all of it by the same functions (``unusable``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from ssl import SSLContext, create_default_context
from typing import Final, TypeAlias

from gateway import __version__
from gateway.adapters.tls import CertificateError, LinkTls, ServerTls, ZoneTls, no_authorities
from gateway.adapters.tracing import TracingUnavailable, check_installed
from gateway.app.journal import JournalOptions
from gateway.app.journal.principals import hashed_with
from gateway.settings import ConfigurationError, Settings
from gateway.settings.errors import Problem
from gateway.settings.places import read_keys

Place: TypeAlias = Callable[[str], str]
"""Tells where a setting was given, for a message; the name of the setting will do."""


def server_tls(settings: Settings, place: Place = str) -> dict[str, ServerTls]:
    """Read the certificates of the ports that have any, by ``clients`` and ``admin``.

    Raises:
        ConfigurationError: some cannot be used.
    """
    ports: dict[str, ServerTls] = {}
    problems: list[Problem] = []
    for port, prefix in (("clients", ""), ("admin", "admin_")):
        names = [f"{prefix}tls_{each}" for each in ("certificate", "key", "client_ca")]
        certificate, key, authority = (getattr(settings, name) for name in names)
        if certificate is None:
            continue
        try:
            with _telling(settings, place, *names):
                ports[port] = ServerTls(certificate, key=key, client_ca=authority)
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)
    return ports


def link_tls(settings: Settings, place: Place = str) -> LinkTls | None:
    """Read the certificates of links; None if there are none, or no links.

    Raises:
        ConfigurationError: they cannot be used.
    """
    if settings.link is None or settings.link_tls_certificate is None or settings.link_tls_ca is None:
        return None
    with _telling(settings, place, "link_tls_certificate", "link_tls_key", "link_tls_ca"):
        return LinkTls(settings.node, settings.link_tls_certificate, key=settings.link_tls_key, ca=settings.link_tls_ca)


def zone_tls(settings: Settings, place: Place = str) -> ZoneTls | None:
    """Read the certificate of links to other clusters; None if there are none.

    Raises:
        ConfigurationError: it cannot be used.
    """
    if settings.zone_tls_certificate is None or settings.zone_tls_ca is None:
        return None
    with _telling(settings, place, "zone_tls_certificate", "zone_tls_key", "zone_tls_ca"):
        return ZoneTls(settings.zone_tls_certificate, key=settings.zone_tls_key, ca=settings.zone_tls_ca)


def tls_to_nodes(settings: Settings) -> SSLContext:
    """How to speak TLS with other nodes' admin ports; read anew each time, as certificates are renewed."""
    context = create_default_context(cafile=settings.admin_tls_ca)
    if settings.admin_tls_certificate is not None:
        context.load_cert_chain(settings.admin_tls_certificate, settings.admin_tls_key)
    return context


def check_admin_authorities(settings: Settings, place: Place = str) -> None:
    """Read the authorities of other nodes' admin ports, which are used when an administrator asks for another node.

    Raises:
        ConfigurationError: they cannot be used.
    """
    if settings.admin_tls_ca is None:
        return
    with _telling(settings, place, "admin_tls_ca"):
        try:
            create_default_context(cafile=settings.admin_tls_ca)
        except OSError as error:
            raise no_authorities(settings.admin_tls_ca, error) from None


def journal_of(settings: Settings, place: Place = str) -> JournalOptions | None:
    """Say how the session journal is written; None if none is.

    Raises:
        ConfigurationError: the key for hashed principals cannot be used; the message does not repeat it.
    """
    if not settings.journal:
        return None
    file = settings.journal_principals_key_file
    if file is None:
        return JournalOptions(release=__version__)
    where = place("journal_principals_key_file")
    keys, problems = read_keys(file, where)
    if len(keys) > 1:
        problems.append(Problem(where, f"{file} holds {len(keys)} keys", "leave one: hashes must not change"))
    if problems:
        raise ConfigurationError(problems)
    return JournalOptions(release=__version__, principals=hashed_with(keys[0].reveal().encode()))


def check_traces(settings: Settings, place: Place = str) -> None:
    """Make sure that the library for traces is there if they are wanted.

    Raises:
        ConfigurationError: it is not.
    """
    if settings.traces:
        try:
            check_installed()
        except TracingUnavailable as error:
            raise ConfigurationError([Problem(place("traces"), error.complaint, error.remedy)]) from None


_ALL: Final[tuple[Callable[[Settings, Place], object], ...]] = (
    server_tls,
    check_admin_authorities,
    link_tls,
    zone_tls,
    journal_of,
    check_traces,
)


def unusable(settings: Settings, place: Place = str) -> Iterator[Problem]:
    """Tell everything for which a node would not start.

    Args:
        settings: of a node.
        place: tells where a setting was given.
    """
    for read in _ALL:
        try:
            read(settings, place)
        except ConfigurationError as error:
            yield from error.problems


@contextmanager
def _telling(settings: Settings, place: Place, *names: str) -> Iterator[None]:
    """Tell of a file that cannot be used by the setting, one of *names*, that names it."""
    try:
        yield
    except CertificateError as error:
        files: dict[Path, str] = {}
        for name in names:
            if (file := getattr(settings, name)) is not None:
                files.setdefault(file, name)
        where = place(files.get(error.file, names[0]))
        raise ConfigurationError([Problem(where, f"{error.file}: {error.complaint}", error.remedy)]) from None
