"""``--web.config.file`` while the server runs: its settings in force.

The files are looked at again for every connection and request, as Prometheus' exporters do: a
changed certificate or user list applies without a restart. An invalid change leaves the settings of
before in force for a minute, since a certificate and its key are seldom replaced in one moment;
then every request fails until the file is valid again. So is a change that would open the server:
to turn off TLS, or the last user or certificate that is demanded, needs a restart, and a file that
is empty while an editor writes it opens nothing.
"""

from __future__ import annotations

import os
import sys
import time

from sexton.model.text import printable
from sexton.web.settings import ConfigProblem, Settings, read_settings
from sexton.web.tls import Tls, TlsProblem

#: How long an invalid change is ignored.
GRACE_S = 60.0


class WebConfig:
    """The settings of a file; reads it again when it changes. Used from one thread."""

    def __init__(self, path: str) -> None:
        """Read the file; `CommandError` if it cannot be used."""
        self._path = path
        #: What is in force. `tls` is another object after the rules for clients changed.
        self.settings, self.tls = _read(path)
        self._files = self.settings.files
        #: Of the files before they were read; `None`: read them again.
        self._stamp: object = None
        self._failing_since: float | None = None
        self._failure = ""
        self._gave_up = False
        for note in self.settings.notes:
            _say(f"{path}: {note}")

    @property
    def authenticates(self) -> bool:
        """Whether every client has shown who it is: a password, or a verified certificate."""
        return self.settings.authenticates

    @property
    def failure(self) -> str:
        """Why requests must fail now; empty if they need not."""
        since = self._failing_since
        if since is None or time.monotonic() - since < GRACE_S:
            return ""
        if not self._gave_up:
            self._gave_up = True
            _say(f"{self._failure}; requests fail until it is repaired")
        return self._failure

    def look(self) -> None:
        """Read the files again if one has changed."""
        stamp = _stamp(self._files)
        if stamp == self._stamp:
            return
        try:
            settings, tls = _read(self._path)
            self._check_change(settings)
        except ConfigProblem as problem:
            self._keep(stamp, tuple(dict.fromkeys((*problem.files, *self._files))))
            self._fail(str(problem))
            return
        self._keep(stamp, settings.files)
        if tls is None or self.tls is None or tls.settings != self.tls.settings:
            self.tls = tls  # else connections that are open may go on
        self.settings = settings
        if self._failing_since is not None:
            self._failing_since, self._failure, self._gave_up = None, "", False
            _say(f"{self._path}: valid again, and in force")

    def _keep(self, stamp: object, files: tuple[str, ...]) -> None:
        """Keep a stamp if it is of these files; else they are read once more."""
        self._stamp = stamp if files == self._files else None
        self._files = files

    def _fail(self, failure: str) -> None:
        if self._failing_since is None:
            self._failing_since = time.monotonic()
        if failure != self._failure and not self._gave_up:
            _say(f"{failure}; the settings of before stay in force for {GRACE_S:.0f} s")
        self._failure = failure

    def _check_change(self, settings: Settings) -> None:
        """Refuse a change that opens the server."""
        before = self.settings
        if before.tls is not None and settings.tls is None:
            gone = "tls_server_config"
        elif before.authenticates and not settings.authenticates:
            gone = "basic_auth_users" if before.users else "RequireAndVerifyClientCert"
        else:
            return
        words = f"{self._path}: {gone} is gone; to serve without it, restart"
        raise ConfigProblem(words, settings.files)


def _say(words: str) -> None:
    print(f"sexton: {printable(words)}", file=sys.stderr, flush=True)


def _read(path: str) -> tuple[Settings, Tls | None]:
    settings = read_settings(path)
    if settings.tls is None:
        return settings, None
    try:
        return settings, Tls(settings.tls)
    except TlsProblem as problem:
        words = f"{path}: tls_server_config.{problem.key}: {problem}"
        raise ConfigProblem(words, settings.files) from None


def _stamp(files: tuple[str, ...]) -> tuple[object, ...]:
    """What changes when one of the files does."""
    found: list[object] = list(files)
    for path in files:
        try:
            about = os.stat(path)
        except (OSError, ValueError):
            found.append(None)
        else:
            found.append((about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns))
    return tuple(found)
