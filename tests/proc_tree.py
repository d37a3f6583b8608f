"""Builds a /proc from the process trees recorded on two H200s, or from a few lines of one's own."""

import re
import struct
from ipaddress import ip_address
from pathlib import Path

RECORDED = Path(__file__).parent / "data" / "gpus" / "h200x2-process-trees.txt"
INITIAL_PID_NAMESPACE = "pid:[4026531836]"
API = "python3 -m vllm.entrypoints.openai.api_server --port 8000"


class ProcTree:
    def __init__(self, root):
        self.root = root
        self.rows = {"tcp": [], "tcp6": []}
        self.namespace(INITIAL_PID_NAMESPACE)
        self.process(1, 0, "/sbin/init")

    def namespace(self, name):
        link = self.root / "self" / "ns" / "pid"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def process(self, pid, parent, command, sockets=()):
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True)
        name = command.split()[0].rpartition("/")[2][:15] if command else "VLLM::EngineCor"
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0 -1\n")
        (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0\0")
        for number, inode in enumerate(sockets):
            (folder / "fd" / str(number)).symlink_to(f"socket:[{inode}]")

    def listen(self, address, port, inode):
        ip = ip_address(address)
        words = struct.unpack(f"<{len(ip.packed) // 4}I", ip.packed)
        at = "".join(f"{word:08X}" for word in words)
        table = "tcp" if ip.version == 4 else "tcp6"
        zeros = "0" * len(at)
        self.row(table, f"0: {at}:{port:04X} {zeros}:0000 0A 0:0 00:0 0 0 0 {inode} 1 0 100")

    def row(self, table, row):
        self.rows[table].append(row)
        (self.root / "net").mkdir(exist_ok=True)
        (self.root / "net" / table).write_text("\n".join(["header", *self.rows[table]]) + "\n")

    def own_address(self, address):
        text = f"Local:\n        |-- {address}\n           /32 host LOCAL\n"
        (self.root / "net").mkdir(exist_ok=True)
        (self.root / "net" / "fib_trie").write_text(text)

    def pod(self, number, pids, address, port, inode):
        """Put processes into a network namespace of their own that listens on all addresses."""
        (self.root / "self" / "ns" / "net").unlink(missing_ok=True)
        (self.root / "self" / "ns" / "net").symlink_to("net:[1]")
        for pid in pids:
            inner = ProcTree.__new__(ProcTree)
            inner.root, inner.rows = self.root / str(pid), {"tcp": [], "tcp6": []}
            inner.own_address(address)
            inner.listen("0.0.0.0", port, inode)
            (inner.root / "ns").mkdir()
            (inner.root / "ns" / "net").symlink_to(f"net:[{number}]")


def recorded(title):
    """The part of the recording under a title such as ``data parallel``."""
    text = RECORDED.read_text()
    parts = re.split(r"^(?:#### |== (?=after))(.+)\n", text, flags=re.MULTILINE)
    (found,) = [body for name, body in zip(parts[1::2], parts[2::2], strict=True) if title in name]
    return found


def build(root, title):
    """/proc as recorded; the API server, where it lives, holds the listening socket."""
    tree = ProcTree(root)
    sections = dict(re.findall(r"^== (\w+)\n((?:(?!==).*\n?)*)", recorded(title), re.MULTILINE))
    for row in re.findall(r"^\s*\d+: .+$", sections["listen"], re.MULTILINE):
        tree.row("tcp", row)
    inode = re.findall(r" 0A .* 0 (\d+) 1 ", sections["listen"])
    for pid, parent, command in re.findall(
        r"^\s*(\d+)\s+(\d+)\s+\d+\s+\d+ (.+)$", sections["ps"], re.MULTILINE
    ):
        tree.process(int(pid), int(parent), command, inode if "api_server" in command else ())
    return tree


def memory_by_gpu(title):
    """{gpu uuid: {pid: bytes}} as NVML told it."""
    return {
        uuid: {int(pid): int(size) for pid, size in re.findall(r"\((\d+), (\d+)\)", processes)}
        for uuid, processes in re.findall(r"^\d (GPU-\S+) \[(.+)\]$", recorded(title), re.MULTILINE)
    }


def pids(title):
    return {pid for processes in memory_by_gpu(title).values() for pid in processes}
