"""Workers that join a roster, and say what workers say."""

from ostraka_gateway import hearing
from ostraka_gateway.silence import LOST_BEATS, SUSPECT_BEATS
from ostraka_shared.messages import Hello, Ready, Started

BEAT_S = 0.5
SILENT_S = SUSPECT_BEATS * BEAT_S + 0.001
LOST_S = LOST_BEATS * BEAT_S + 0.001
SPEED = 350.0


def hello(name="w0", incarnation=1, cluster="c", fingerprint="f"):
    return Hello(cluster, name, incarnation, fingerprint, "host", 100, (0,))


def identity(name="w0", incarnation=1):
    return f"{name}.{incarnation}".encode()


def join(roster, name="w0", incarnation=1, now=0.0, *, ready=True):
    """As the cluster greets a worker."""
    said = hello(name, incarnation)
    assert roster.refusal(said) is None
    for earlier in roster.earlier_ones(identity(name, incarnation), said):
        roster.remove(earlier, now)
    worker = roster.join(identity(name, incarnation), said, now)
    if ready:
        hearing.ready(worker, Ready("fake 1", 512, SPEED))
    return worker


def run_call(roster, worker, tokens, seconds, now):
    hearing.heard(worker, roster.pace, now)
    hearing.started(worker, Started(("r",), tokens))
    hearing.heard(worker, roster.pace, now + seconds)
    return now + seconds
