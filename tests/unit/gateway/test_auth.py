import hmac

import pytest

from ostraka_gateway import auth
from ostraka_gateway.auth import Keys, load_keys
from ostraka_shared.errors import ConfigError, Unauthenticated

ENVIRONMENT = {"JEV_API_KEY": "jev-secret", "OSTRAKA_API_KEYS": "ci:secret-1, secret-2 ,web:secret:3,ci:secret-4"}


@pytest.fixture
def keys_file(tmp_path):
    def write(text, mode=0o600):
        path = tmp_path / "keys"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(mode)
        return str(path)

    return write


def test_without_keys_any_header_is_ignored():
    keys = load_keys({}, None)
    assert keys == Keys()
    assert keys.names == []
    assert {keys.check(header) for header in (None, "", "Bearer x", "Basic eDp5", "é")} == {None}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("jev-secret", "key1"),
        ("secret-1", "ci"),
        ("secret-2", "key2"),
        ("secret:3", "web"),
        ("secret-4", "ci"),
        ("file-1", "batch"),
        ("file-2", "key3"),
    ],
)
def test_a_key_is_known_by_its_name_wherever_it_comes_from(keys_file, key, name):
    keys = load_keys(ENVIRONMENT, keys_file("# a comment\n\n  batch:file-1  \nfile-2\n#web:old\n"))
    assert keys.names == ["batch", "ci", "key1", "key2", "key3", "web"]
    assert keys.check(f"Bearer {key}") == name


@pytest.mark.parametrize("header", ["Bearer secret-2", "bearer secret-2", "BEARER   secret-2", "Bearer secret-2  "])
def test_the_scheme_has_no_case(header):
    assert load_keys(ENVIRONMENT, None).check(header) == "key2"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "secret-2",
        "Basic secret-2",
        "Bearersecret-2",
        "Bearer secret",
        "Bearer secret-22",
        "Bearer SECRET-2",
        "Bearer secret-2 x",
        "Bearer x secret-2",
        "Bearer ci:secret-1",
        "Bearer s\xe9cret",
    ],
)
def test_no_key_and_a_wrong_one_are_refused_alike(header):
    with pytest.raises(Unauthenticated) as caught:
        load_keys(ENVIRONMENT, None).check(header)
    assert str(caught.value) == "this server wants an API key it knows: send it as `Authorization: Bearer KEY`"


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer jev-secret", "Bearer secret-4"])
def test_every_key_is_compared_whatever_was_found(header, monkeypatch):
    keys, compared = load_keys(ENVIRONMENT, None), []

    def compare(one, other):
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(auth, "hmac", type("hmac", (), {"compare_digest": staticmethod(compare)}))
    if header in (None, "Bearer wrong"):
        with pytest.raises(Unauthenticated):
            keys.check(header)
    else:
        assert keys.check(header)
    assert compared == [(32, 32)] * 5


def test_keys_are_not_kept_as_they_are():
    assert "secret" not in repr(load_keys(ENVIRONMENT, None))


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_variable_is_an_unset_one(empty):
    assert load_keys({"JEV_API_KEY": empty, "OSTRAKA_API_KEYS": empty}, None) == Keys()


def test_jev_s_key_is_one_whatever_it_holds():
    assert load_keys({"JEV_API_KEY": "a:b,c"}, None).check("Bearer a:b,c") == "key1"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("good,,good", "entry 2 of OSTRAKA_API_KEYS: a key should be printable"),
        ("ci:", "entry 1 of OSTRAKA_API_KEYS: a key should be printable"),
        ("two words", "a key should be printable ASCII without spaces"),
        ("ci:schlüssel", "a key should be printable ASCII"),
        (":secret-1", "entry 1 of OSTRAKA_API_KEYS: a key's name"),
        ("two words:secret-1", "a key's name should be 1 to 64 letters"),
        ("x" * 65 + ":secret-1", "a key's name"),
    ],
)
def test_what_cannot_be_a_key_is_told_by_its_place_and_not_quoted(entries, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load_keys({"OSTRAKA_API_KEYS": entries}, None)
    assert "secret" not in str(caught.value)
    assert "words:" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o644, 0o666, 0o601])
def test_a_file_others_can_read_is_refused(keys_file, mode):
    with pytest.raises(ConfigError, match="chmod o-rwx"):
        load_keys({}, keys_file("secret", mode))


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440, 0o640])
def test_a_file_of_its_owner_and_group_is_read(keys_file, mode):
    assert load_keys({}, keys_file("secret", mode)).names == ["key1"]


@pytest.mark.parametrize("text", ["", "# only words\n", "\n\n"])
def test_a_file_without_keys_opens_nothing(keys_file, text):
    with pytest.raises(ConfigError, match="holds no key"):
        load_keys({}, keys_file(text))
    with pytest.raises(ConfigError, match="holds no key"):
        load_keys(ENVIRONMENT, keys_file(text))


def test_a_file_of_an_editor_of_windows_is_read(keys_file):
    keys = load_keys({}, keys_file(b"\xef\xbb\xbfalice:secret\r\nbob:other\r\n"))
    assert keys.names == ["alice", "bob"]
    assert keys.check("Bearer secret") == "alice"


def test_a_file_that_cannot_be_read_is_told(keys_file, tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load_keys({}, str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match="Is a directory"):
        load_keys({}, str(tmp_path))
    with pytest.raises(ConfigError, match="not a text file"):
        load_keys({}, keys_file(b"\xff\xfe"))


def test_a_line_that_is_wrong_is_told_by_its_number(keys_file):
    with pytest.raises(ConfigError, match="line 3 of ") as caught:
        load_keys({}, keys_file("# words\nci:good\nci:not secret\n"))
    assert "not secret" not in str(caught.value)
