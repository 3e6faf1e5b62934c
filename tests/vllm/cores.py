"""The small real model, and the processes in which a real engine runs. Not a test itself."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / ".cache" / "models" / "smollm2-135m"


def children(pid: int) -> list[int]:
    """All descendants of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    own = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return own + [grandchild for child in own for grandchild in children(child)]


def cores(pid: int) -> list[int]:
    """Those of them that are the core of an engine."""
    return [child for child in children(pid) if b"EngineCore" in Path(f"/proc/{child}/cmdline").read_bytes()]
