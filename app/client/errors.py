"""What can go wrong between a client and the service, with what the service said about it."""

from __future__ import annotations

from pydantic import ValidationError

from app.wire import Problem, ProblemItem


class ClientError(Exception):
    """A call to the service did not succeed."""


class Unreachable(ClientError):
    """No answer came: the service is not there, or the way to it is broken."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"no service answers at {address}: {why}")


class ServiceError(ClientError):
    """The service answered with a problem; `faults` has each fault with its pointer and its remedy."""

    def __init__(self, asked: str, status: int, body: bytes, *, retry_after_s: float = 0.0, unread: str = "") -> None:
        self.status, self.retry_after_s = status, retry_after_s
        self.faults: tuple[ProblemItem, ...] = ()
        try:
            self.faults = tuple(Problem.model_validate_json(body, extra="ignore").errors)
        except ValidationError:  # no problem document: something else than the service may have answered
            told = body.decode(errors="replace")[:2000]
            if unread:
                told = f"with an answer that cannot be read ({unread}): {told}"
        else:
            told = "; ".join(f"{fault.what} ({fault.where})" for fault in self.faults)
        super().__init__(f"{asked}: {status} {told}")

    @property
    def code(self) -> str:
        """The code of the first fault; empty where the answer had none."""
        return self.faults[0].code if self.faults else ""
