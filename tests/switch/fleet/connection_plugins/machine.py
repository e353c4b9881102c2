"""Ansible's connection to a machine of the tests: it enters that machine's network and root."""

from __future__ import annotations

import shlex
import shutil

from ansible.plugins.connection.local import Connection as Local

DOCUMENTATION = """
name: machine
short_description: enters a machine of the tests
description: runs commands in the namespaces and in the root of a process
author: the ovs-lbt authors
options:
  pid:
    description: the process
    type: int
    vars:
      - name: ansible_machine_pid
extends_documentation_fragment:
  - connection_pipelining
"""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Connection(Local):
    """As a login would have it: nothing of the environment of the tests."""

    transport = "machine"

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        target = f"--target={self.get_option('pid')}"
        namespaces = ["--mount", "--net", "--pid", "--cgroup"]
        entered = ["nsenter", target, *namespaces, "--root", "--wd", "--"]
        login = ["env", "-i", f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8", "/bin/sh", "-c", cmd]
        done: tuple[int, bytes, bytes] = super().exec_command(
            shlex.join([*entered, *login]), in_data=in_data, sudoable=sudoable
        )
        return done

    def put_file(self, in_path: str, out_path: str) -> None:
        shutil.copyfile(in_path, self._there(out_path))

    def fetch_file(self, in_path: str, out_path: str) -> None:
        shutil.copyfile(self._there(in_path), out_path)

    def _there(self, path: str) -> str:
        return f"/proc/{self.get_option('pid')}/root{path}"
