"""Certificates of authorities of our own, as `ovs-pki` would make them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from controller.host.sockets import TlsFiles

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
AUTHORITY = """\
[own]
database = index.txt
default_md = sha256
rand_serial = yes
policy = names
[names]
commonName = supplied
[extensions]
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


def make(directory: Path, name: str, issuer: str = "", *, expired: bool = False) -> None:
    """NAME.key and NAME.pem, signed by ISSUER, or by itself: an authority."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)

    new = ("req", *KEY, "-subj", f"/CN={name}", "-keyout", f"{name}.key")
    if not issuer:
        # Python's default context asks for that from 3.13 on, and for the extensions below.
        use = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        openssl(*new, "-x509", *use, "-days", "2", "-out", f"{name}.pem")
        return
    openssl(*new, "-out", f"{name}.csr")
    (directory / "ca.conf").write_text(AUTHORITY)
    extensions = ("-extfile", "ca.conf", "-extensions", "extensions")
    if expired:
        # From OpenSSL 3.5 on, `x509` makes none that has ended already; `ca` takes dates.
        (directory / "index.txt").write_text("")
        by = ("-cert", f"{issuer}.pem", "-keyfile", f"{issuer}.key", "-outdir", ".")
        dates = ("-startdate", "20200101000000Z", "-enddate", "20200102000000Z")
        signing = ("ca", "-batch", "-notext", "-config", "ca.conf", "-name", "own", *by, *dates)
        openssl(*signing, *extensions, "-in", f"{name}.csr", "-out", f"{name}.pem")
        return
    signed = ("-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", "-CAcreateserial")
    request = ("x509", "-req", "-in", f"{name}.csr", *signed, *extensions, "-days", "2")
    openssl(*request, "-out", f"{name}.pem")


def files(directory: Path, name: str, authority: str) -> TlsFiles:
    """What one has that goes by that name and trusts that authority."""
    paths = (directory / f"{name}.key", directory / f"{name}.pem", directory / f"{authority}.pem")
    return TlsFiles(*map(str, paths))
