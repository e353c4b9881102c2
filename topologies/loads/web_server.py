"""A web server (nginx) with files to download."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from topologies.network import processes

PORT = 80

_CONFIGURATION = """\
daemon off;
master_process off;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000;
    keepalive_timeout 600s;
    default_type application/octet-stream;
    {temporary_paths}
    server {{ listen {port} backlog=1024; root {files}; }}
}}
"""


def make_files(directory: Path, sizes_bytes: Sequence[int]) -> None:
    """Make one file of each size, named by its size."""
    directory.mkdir(parents=True, exist_ok=True)
    for size_bytes in sizes_bytes:
        (directory / str(size_bytes)).write_bytes(bytes(size_bytes))


def start(namespace_pid: int, directory: Path, files: Path) -> subprocess.Popen[bytes]:
    """Start a server in a namespace. It writes only below `directory`."""
    directory.mkdir(parents=True)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    configuration = directory / "nginx.conf"
    configuration.write_text(
        _CONFIGURATION.format(
            directory=directory,
            files=files,
            port=PORT,
            temporary_paths=" ".join(f"{kind}_temp_path {directory}/{kind};" for kind in kinds),
        )
    )
    command = ["nginx", "-p", str(directory), "-c", str(configuration)]
    return processes.start_in(namespace_pid, command, directory / "nginx.log")
