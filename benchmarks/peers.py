"""Other MCP servers, installed from their registries into a folder of their own when asked: what the benchmarks compare with.

A key that a peer wants before it starts is made up, and a proxy that nobody serves keeps it from sending anything out.
"""
from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List, NamedTuple, Tuple

import common


class Peer(NamedTuple):
    """A package that is a server, or a library."""

    package: str
    registry: str  # pip or npm
    environment: Tuple[Tuple[str, str], ...] = ()
    prepare: str = ""  # Python that fetches what the peer would otherwise fetch within its first call


PEERS = (
    Peer("mcp-server-fetch", "pip", (), "from readabilipy.simple_json import have_node; have_node()"),
    Peer("duckduckgo-mcp-server", "pip"),
    Peer("tavily-mcp", "npm", (("TAVILY_API_KEY", "tvly-made-up"),)),
    Peer("exa-mcp-server", "npm", (("EXA_API_KEY", "made-up"),)),
    Peer("firecrawl-mcp", "npm", (("FIRECRAWL_API_KEY", "fc-made-up"),)),
)


def _run(command: List[str]) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    except OSError as error:
        raise common.NotRun(f"{command[0]}: {error.strerror}") from None
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise common.NotRun("cannot be installed: " + (said[-1] if said else "no reason given")[:120]) from None


def venv_python(folder: Path) -> Path:
    """The interpreter of the peers' virtual environment, made when absent."""
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        _run([common.PYTHON, "-m", "venv", str(folder / "venv")])
    return python


def version(peer: Peer, folder: Path) -> str:
    """The installed version; installs the newest when there is none. NotRun says why that cannot be."""
    if peer.registry == "npm":
        manifest = folder / "node_modules" / peer.package / "package.json"
        if not manifest.exists():
            _run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), peer.package])
        return str(json.loads(manifest.read_text(encoding="utf-8"))["version"])
    python, asked = venv_python(folder), f"import importlib.metadata as m; print(m.version({peer.package!r}))"
    try:
        return _run([str(python), "-c", asked]).strip()
    except common.NotRun:
        _run([str(python), "-m", "pip", "install", "-q", peer.package])
        if peer.prepare:
            _run([str(python), "-c", peer.prepare])
        return _run([str(python), "-c", asked]).strip()


def command(peer: Peer, folder: Path) -> List[str]:
    """What starts the server."""
    if peer.registry == "npm":
        return [shutil.which("node") or "node", str((folder / "node_modules" / ".bin" / peer.package).resolve())]
    return [str(folder / "venv" / "bin" / peer.package)]


def environment(peer: Peer) -> Dict[str, str]:
    """A bare environment, the made-up key, and no way out but loopback."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), common.NO_WAY_OUT)
    return common.environment({**proxies, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", **dict(peer.environment)})
