"""The `ostraka` command."""


def main() -> int:
    return 0
