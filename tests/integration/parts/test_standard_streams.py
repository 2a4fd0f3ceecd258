import json
import subprocess
import sys

SCRIPT = """
import json, os, sys
import ostraka.__main__
print("lost"), sys.stderr.write("lost"), sys.stdin.read()
found = [[os.readlink(f"/proc/self/fd/{n}"), os.get_inheritable(n)] for n in (0, 1, 2)]
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
"""


def test_streams_that_were_closed_are_open_on_nothing_for_children_too(tmp_path):
    found = tmp_path / "found.json"
    command = [sys.executable, "-c", SCRIPT, str(found)]
    subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], timeout=30, check=True)
    assert json.loads(found.read_text()) == [["/dev/null", True]] * 3


def test_what_the_terminal_does_not_know_is_written_as_an_escape():
    script = "import ostraka.__main__; print('\\u2603 \\udcff')"
    for encoding, told in (("ascii", b"\\u2603 \\udcff\n"), ("utf-8", b"\xe2\x98\x83 \\udcff\n")):
        command = ["env", f"PYTHONIOENCODING={encoding}", sys.executable, "-c", script]
        assert subprocess.run(command, timeout=30, check=True, capture_output=True).stdout == told
