"""What an error says of the user's account, by the names and phrases of account_faults.yaml: a pure reading of an answer."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from arena.files.documents import read_yaml
from arena.schema import AccountFault, AccountFaults, Api

FILE = Path(__file__).parents[1] / "account_faults.yaml"


@functools.cache
def _known() -> AccountFaults:
    return read_yaml(FILE, AccountFaults)


def account_fault(api: Api, status: int | None, names: Sequence[str], message: str) -> AccountFault | None:
    """The account's fault in an error with those names and that message; None when it blames something else.

    Args:
        api: interface of the request.
        status: of the answer. Below 300 the error is inside a stream, and one of its names stands for the status.
        names: see `answers.error_names`.
        message: the provider's own, which may quote the request: only its beginning counts.
    """
    inside = (status or 0) < 300

    def matches(fault: AccountFault) -> bool:
        same_status = bool({fault.code, str(fault.status)} & set(names)) if inside else status == fault.status
        return (
            same_status
            and (not fault.apis or api in fault.apis)
            and (fault.code in names if fault.code else not is_limit(status, names))
            and message.lower().startswith(fault.phrase.lower())
        )

    return next((fault for fault in _known().faults if matches(fault)), None)


def is_limit(status: int | None, names: Sequence[str]) -> bool:
    """Whether a failure is a limit on traffic, which the agent's own requests may have used up."""
    return status == 429 or "429" in names or not set(names).isdisjoint(_known().limits)
