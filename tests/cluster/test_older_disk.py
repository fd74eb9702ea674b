"""A node whose disk is put back to what it was before its last start is refused, and comes with an empty one."""

import shutil
from pathlib import Path

import pytest

from duramen.base.errors import ServerUnreachable
from duramen.node.processes import NodeProcesses


@pytest.mark.long
def test_an_older_copy_of_a_disk_is_refused(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path) as nodes:
        node, copy = nodes.nodes[3], tmp_path / "copy"
        nodes.kill(3)
        shutil.copytree(node.data_dir, copy)
        nodes.start([3])
        nodes.kill(3)
        shutil.rmtree(node.data_dir)
        copy.rename(node.data_dir)
        with pytest.raises(ServerUnreachable, match="is an older copy"):
            nodes.start([3])
        shutil.rmtree(node.data_dir)
        nodes.start([3])
        assert nodes.running == [1, 2, 3]
