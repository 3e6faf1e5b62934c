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
    return package(folder, "misbehaving", ENTRY_POINTS, MODULE)


def package(folder: Path, name: str, entry_points: str, code: str) -> Path:
    """A package of one module, in `folder`, to be put on PYTHONPATH."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    (folder / f"{name}.py").write_text(code)
    return folder


def tools(folder: Path, code: str, *names: str) -> Path:
    """A package of tools `test.NAME`, each a function of that name in `code`."""
    lines = "\n".join(f"test.{name} = own_tools:{name}" for name in names)
    return package(folder, "own_tools", f"[hexgen_flow.tools]\n{lines}\n", code)
