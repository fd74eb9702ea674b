"""Access to S3 and compatible stores: from options, otherwise from the environment.

Everything is checked here, because the library that writes Delta panics on invalid addresses and header values.
"""

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from pyarrow import fs

from duramen.base.errors import OptionInvalid

__all__ = ["ENDPOINT", "ENVIRONMENT", "REGION", "endpoint_of", "region_of", "s3_files"]

ENDPOINT: Final = "s3.endpoint"
REGION: Final = "s3.region"
ENVIRONMENT: Final = {
    ENDPOINT: "AWS_ENDPOINT_URL",
    REGION: "AWS_REGION",
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
}
"""The environment variables of the options."""

_ARGUMENTS: Final = {
    REGION: "region",
    "s3.access-key-id": "access_key",
    "s3.secret-access-key": "secret_key",
    "s3.session-token": "session_token",
}
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_REGION: Final = re.compile(r"[A-Za-z0-9-]*")
_HEADER: Final = re.compile(r"[!-~]*")


def s3_files(options: Mapping[str, str]) -> fs.FileSystem:
    """The file system for these options. Raises OptionInvalid for invalid ones."""
    for name in ENVIRONMENT:
        _check(name, *_said(name, options))
    arguments = {_ARGUMENTS[name]: value for name, value in options.items() if name in _ARGUMENTS}
    endpoint = endpoint_of(options)
    if endpoint:
        split = urlsplit(endpoint)
        arguments |= {"endpoint_override": split.netloc, "scheme": split.scheme}
        arguments["region"] = region_of(options)
    return fs.S3FileSystem(**arguments)


def endpoint_of(options: Mapping[str, str]) -> str:
    """The URL of the endpoint; empty if the region determines it."""
    return _said(ENDPOINT, options)[1]


def region_of(options: Mapping[str, str]) -> str:
    """The region, with a default."""
    return _said(REGION, options)[1] or "us-east-1"


def _said(name: str, options: Mapping[str, str]) -> tuple[str, str]:
    """The source of the option, itself or the environment, and its value."""
    if name in options:
        return name, options[name]
    return ENVIRONMENT[name], os.environ.get(ENVIRONMENT[name], "")


def _check(name: str, who: str, value: str) -> None:
    if name == ENDPOINT:
        if value and not _is_address(value):
            raise OptionInvalid(f"{who}: {value!r} does not fit; it must be a URL such as http://127.0.0.1:9000")
    elif name == REGION:
        if not _REGION.fullmatch(value):
            raise OptionInvalid(f"{who}: {value!r} does not fit; it must be a region such as eu-central-1")
    elif not _HEADER.fullmatch(value):  # it may be secret
        raise OptionInvalid(f"{who}: the value does not fit; it must be of ASCII characters, without blanks")


def _is_address(text: str) -> bool:
    try:
        split = urlsplit(text)
        host, port = split.netloc, split.port
    except ValueError:
        return False
    host = host if port is None else host.removesuffix(f":{port}")
    plain = f"{split.scheme}://{split.netloc}"
    return split.scheme in {"http", "https"} and bool(_HOST.fullmatch(host)) and text in {plain, f"{plain}/"}
