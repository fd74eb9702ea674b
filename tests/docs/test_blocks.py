"""What the pages' tests count as the same, and as different."""

import pytest
from tests.docs.pages import Block, blocks, commands, differences

PAGE = """
<!-- varies: times, ids -->
```console
$ cat <<END
> one
> END
one
$ date
2026-11-21 09:18:56.222Z
```

<!-- not run: needs root -->
```sh
systemctl start duramen
```
"""


def test_a_page_is_read() -> None:
    first, second = blocks(PAGE)
    assert (first.language, first.line, first.varies, first.not_run) == ("console", 3, ["times", "ids"], "")
    assert [(one.text, one.lines) for one in commands(first)] == [
        ("cat <<END\none\nEND", ["one"]),
        ("date", ["2026-11-21 09:18:56.222Z"]),
    ]
    assert (second.language, second.not_run) == ("sh", "needs root")


def test_what_varies_has_to_be_known() -> None:
    with pytest.raises(ValueError, match="weather is not among"):
        list(blocks("<!-- varies: weather -->\n```console\n$ ls\n```\n"))


def test_output_needs_a_command() -> None:
    with pytest.raises(ValueError, match="nothing is typed"):
        commands(Block("console", "out\n$ ls\n", 1))


@pytest.mark.parametrize(
    ("promised", "came", "varies"),
    [
        (["a", "b"], ["a", "b"], []),
        (["a…c"], ["abbc"], []),
        (["a", "…"], ["a", "b", "c"], []),
        (["a", "…", "d"], ["a", "b", "c", "d"], []),
        (["a", "…"], ["a"], []),
        (["took 12.5 ms at 09:18:56"], ["took 3 ms at 23:59:59.123"], ["times", "durations"]),
        (["id  000007af-063b-8219-8ed0-c5cf09c38c07"], ["id 110007af-063b-8219-8ed0-c5cf09c38c07"], ["ids"]),
        (["SIZE", "710 B"], ["  SIZE", "1.2 MiB"], ["sizes"]),
    ],
)
def test_the_same(promised: list[str], came: list[str], varies: list[str]) -> None:
    assert differences(promised, came, varies) == ""


@pytest.mark.parametrize(
    ("promised", "came"),
    [(["a"], ["b"]), (["a"], ["a", "b"]), (["a", "b"], ["a"]), (["a", "…", "d"], ["a", "b"]), (["a.c"], ["abc"])],
)
def test_different(promised: list[str], came: list[str]) -> None:
    assert differences(promised, came, []) != ""
