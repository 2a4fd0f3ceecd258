"""Which generations run: the one that serves, one beside it that may come after it, and those that leave."""

import socket

from ostraka.children import Child
from ostraka.departure import Departure
from ostraka.forking import Zygote
from ostraka.gateway_child import GatewayChild
from ostraka.generation import Generation


class Succession:
    """`serving` is looked after by the supervisor. `successor`: while there is a rollout, and until it has left where
    that was given up. Instants are of any monotonic clock."""

    def __init__(self, first: Generation) -> None:
        self.serving = first
        self.successor: Generation | None = None
        self._departures: list[Departure] = []

    @property
    def generations(self) -> list[Generation]:
        beside = [self.successor] if self.successor else []
        leaving = [each.generation for each in self._departures]
        return [self.serving, *(each for each in beside if each not in leaving), *leaving]

    @property
    def children(self) -> list[Child]:
        return [child for generation in self.generations for child in generation.children]

    @property
    def doors(self) -> list[GatewayChild]:
        return [door for generation in self.generations for door in generation.doors]

    @property
    def zygotes(self) -> list[Zygote]:
        return [zygote for generation in self.generations for zygote in generation.zygotes]

    @property
    def channels(self) -> list[socket.socket]:
        """On which the gateways report."""
        return [door.control for door in self.doors if door.control]

    def switch(self, ends: float) -> None:
        """The successor serves; the other leaves, until `ends` at the latest."""
        if self.successor:
            old, self.serving, self.successor = self.serving, self.successor, None
            self.serving.is_serving = True
            self._departures.append(Departure(old, ends))

    def give_up(self, ends: float) -> None:
        """The successor leaves, until `ends` at the latest."""
        if self.successor:
            self._departures.append(Departure(self.successor, ends))

    def exited(self, child: Child, code: str) -> bool:
        """Whether it belonged to one that leaves."""
        for each in self._departures:
            if child in each.generation.children:
                each.exited(child, code)
                return True
        return False

    def turn(self, now: float) -> list[Generation]:
        """Those that left, of which nothing is left: each once."""
        gone = [each for each in self._departures if each.turn(now)]
        self._departures = [each for each in self._departures if each not in gone]
        return [each.generation for each in gone]

    def remove_run_dirs(self) -> None:
        """Once no process is left."""
        for generation in self.generations:
            generation.remove_run_dir()
