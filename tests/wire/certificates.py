"""Certificates of authorities of our own, as `ovs-pki` would make them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from controller.wires import TlsFiles

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def make(directory: Path, name: str, issuer: str = "", *, expired: bool = False) -> None:
    """NAME.key and NAME.pem, signed by ISSUER, or by itself: an authority."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)

    new = ("req", *KEY, "-subj", f"/CN={name}", "-keyout", f"{name}.key")
    if not issuer:
        openssl(*new, "-x509", "-days", "2", "-out", f"{name}.pem")
        return
    openssl(*new, "-out", f"{name}.csr")
    signed = ("-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", "-CAcreateserial")
    request = ("x509", "-req", "-in", f"{name}.csr", *signed, "-days", "-1" if expired else "2")
    openssl(*request, "-out", f"{name}.pem")


def files(directory: Path, name: str, authority: str) -> TlsFiles:
    """What one has that goes by that name and trusts that authority."""
    paths = (directory / f"{name}.key", directory / f"{name}.pem", directory / f"{authority}.pem")
    return TlsFiles(*map(str, paths))
