"""Names of users as names of files, which may not have every character and end at 255 bytes.

streams/bids            a name as it is
streams/%C3%BC%2Fx      what files cannot be called is quoted as in addresses on the web
streams/aaaa…=5e88…     a long name: its beginning and a digest; ``name.json`` in the folder has all of it
"""

from __future__ import annotations

import hashlib
from urllib.parse import quote, unquote

NAME = "name.json"
"""The record in a folder whose name says only how the name begins."""
_LONGEST = 200
"""Bytes of a file name; a file that is being written has some more."""
_BEGINNING = 120


def file_name(name: str) -> str:
    """What the file or folder of something with this name is called; no two have the same."""
    quoted = quote(name, safe="@")
    if not quoted.strip("."):
        return quoted.replace(".", "%2E")  # would be the folder itself, or the one around it
    if len(quoted) <= _LONGEST:
        return quoted
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"{quoted[:_BEGINNING]}={digest}"


def is_shortened(file: str) -> bool:
    """Whether a file name does not say the whole name."""
    return "=" in file  # which is quoted elsewhere


def name_of(file: str) -> str:
    """The name that a file name says, if it says all of it."""
    return unquote(file)
