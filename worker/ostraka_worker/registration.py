"""What each gateway knows of this worker: told by HELLO, READY and DRAIN, and all over again after a break."""

from collections.abc import Callable

from ostraka_shared.messages import Bye, Drain, Hello, Message, Ready, Refused


class Registration:
    """`send` is to this one gateway. `refusal`: why it wants no more of this worker; None while it does."""

    def __init__(self, hello: Hello, send: Callable[[Message], bool]) -> None:
        self._hello = hello
        self._send = send
        self._ready: Ready | None = None
        self._is_draining = False
        self._is_renewing = False
        self.refusal: Refused | None = None

    def say(self, message: Message) -> None:
        if self.refusal is None:
            self._send(message)

    def introduce(self) -> None:
        self.say(self._hello)

    def announce(self, ready: Ready) -> None:
        self._ready = ready
        self.say(ready)

    def drain(self) -> None:
        self._is_draining = True
        self.say(Drain())

    def welcome(self) -> None:
        self._is_renewing = False

    def lose_link(self) -> None:
        """A HELLO that was on its way may be lost with it."""
        self._is_renewing = False

    def renew(self) -> bool:
        """The gateway restarted, or the link was cut: work or results may have been lost on the way, and only a new
        HELLO has the gateway give what we held to others. False where that has been done already.

        Once: every message that the old gateway did not live to read is refused by the new one, one by one.
        """
        if self._is_renewing or self.refusal is not None:
            return False
        self._is_renewing = True
        self.introduce()
        if self._ready:
            self.announce(self._ready)
        if self._is_draining:
            self.drain()
        return True


class Registrations(tuple[Registration, ...]):
    """With all gateways, by their numbers."""

    __slots__ = ()

    @property
    def refusal(self) -> Refused | None:
        """Why no gateway wants this worker any more."""
        refusals = [each.refusal for each in self]
        return refusals[0] if all(refusals) else None

    def introduce(self) -> None:
        for each in self:
            each.introduce()

    def announce(self, ready: Ready) -> None:
        for each in self:
            each.announce(ready)

    def drain(self) -> None:
        for each in self:
            each.drain()

    def leave(self) -> None:
        for each in self:
            each.say(Bye("drained"))
