"""A package of a responder and tools that misbehave on request, found by its entry points as a user's own would be."""

from pathlib import Path

MODULE = '''
from workers.engines.protocol import EngineError
from workers.engines.responders import Answer


class Obedient:
    """The last line of a prompt is an order; what is no order is said again."""

    def respond(self, call):
        order, _, rest = call.call.text().rsplit("\\n", 1)[-1].partition(" ")
        if order == "refuse":
            raise EngineError("the GPU fell off the bus", retryable=False)
        if order == "crash":
            raise ZeroDivisionError("a bug in the engine")
        if order == "linger":
            return Answer(rest, 1_000_000)
        return Answer(rest if order == "say" else f"{order} {rest}".strip(), 4)


def obedient(option):
    return Obedient()


def stop(args, context):
    return next(iter([]))


def leave(args, context):
    raise SystemExit("goodbye")


def strange(args, context):
    return {"rows": [{1, 2}]}


def big(args, context):
    return "x" * (9 << 20)
'''

ENTRY_POINTS = """
[hexgen_flow.responders]
obedient = misbehaving:obedient
[hexgen_flow.tools]
test.stop = misbehaving:stop
test.leave = misbehaving:leave
test.strange = misbehaving:strange
test.big = misbehaving:big
"""


def install(folder: Path) -> Path:
    """Write the package into `folder`, to be put on PYTHONPATH."""
    info = folder / "misbehaving-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: misbehaving\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "misbehaving.py").write_text(MODULE)
    return folder
