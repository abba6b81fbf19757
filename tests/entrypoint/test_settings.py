"""The settings table: what a user may write, and what a mistake is answered with."""

from __future__ import annotations

from typing import Any

import pytest

from entrypoint.errors import StartError
from entrypoint.settings import BY_NAME, TABLE, Settings, closest, is_service_link, used_by

LAB = used_by("jupyter")
HASH = "argon2:$argon2id$v=19$m=10240,t=10,p=8$mHmOnRtCFEp45uK8bsNgYg$2Vsf7H58Cmri5Naykl1+Zc2uAfHXPozk6"


def read(only: Any = LAB, **environ: str) -> Any:
    return Settings.read({name.encode(): value.encode() for name, value in environ.items()}, only)


def mistake(**environ: str) -> Any:
    with pytest.raises(StartError) as caught:
        read(**environ)
    assert caught.value.code == 64
    return caught.value


def test_without_variables_every_setting_has_its_default() -> None:
    settings = read(tuple(BY_NAME))
    for setting in TABLE:
        if not setting.by_file:
            assert settings[setting.name] == setting.default
        else:
            assert not settings[setting.name]


def test_every_variable_of_the_design_is_in_the_table() -> None:
    designed = """MODE JUPYTER_TOKEN JUPYTER_PASSWORD_HASH JUPYTER_AUTH JUPYTER_PORT JUPYTER_BASE_URL
        JUPYTER_CERT_FILE JUPYTER_KEY_FILE CODE_TOKEN CODE_PORT SSH_PUBLIC_KEY SSH_PORT PUID PGID GRANT_SUDO
        REQUIRE_GPU"""
    assert sorted(BY_NAME) == sorted(designed.split())


def test_every_secret_can_come_by_file() -> None:
    assert [setting.name for setting in TABLE if setting.secret and not setting.by_file] == []


@pytest.mark.parametrize("port", ["1", "8888", "65535"])
def test_a_port_is_taken(port: Any) -> None:
    assert read(JUPYTER_PORT=port)["JUPYTER_PORT"] == int(port)


@pytest.mark.parametrize("port", ["88o8", "0", "65536", "-1", " 8888", "8888 ", "1e3", "8_8", "٨٨", "80.0", "9" * 5000])
def test_a_bad_port_is_refused_with_what_was_seen_and_what_to_write(port: Any) -> None:
    error = mistake(JUPYTER_PORT=port)
    assert error.what == "JUPYTER_PORT must be a whole number from 1 to 65535"
    assert error.seen == f"JUPYTER_PORT={port}"
    assert "-e JUPYTER_PORT=8888" in error.do


def test_an_empty_variable_counts_as_unset() -> None:
    assert read(JUPYTER_PORT="", JUPYTER_BASE_URL="")["JUPYTER_PORT"] == 8888
    assert not read(JUPYTER_TOKEN_FILE="")["JUPYTER_TOKEN"]
    assert not read(JUPYTER_PASSWORD_HASH="")["JUPYTER_PASSWORD_HASH"]


def test_a_port_of_a_kubernetes_service_is_ignored_with_one_line() -> None:
    settings = read(JUPYTER_PORT="tcp://10.0.0.1:80")
    assert settings["JUPYTER_PORT"] == 8888
    assert len(settings.notes) == 1
    assert "JUPYTER_PORT=tcp://10.0.0.1:80" in settings.notes[0]


def test_only_ports_can_come_from_kubernetes() -> None:
    environ = {b"JUPYTER_PORT": b"tcp://10.0.0.1:80", b"JUPYTER_TOKEN": b"tcp://10.0.0.1:80"}
    assert is_service_link("JUPYTER_PORT", environ)
    assert not is_service_link("JUPYTER_TOKEN", environ)


def test_an_ordinary_start_has_no_notes() -> None:
    assert read(JUPYTER_PORT="8889").notes == ()


def test_only_the_settings_that_the_command_uses_are_checked() -> None:
    assert read(used_by("train"), JUPYTER_PORT="88o8", JUPYTER_TOKEN="", SSH_PORT="x")["PUID"] is None
    assert "JUPYTER_PORT" in mistake(JUPYTER_PORT="88o8").what


def test_passthrough_uses_the_user_ids_alone() -> None:
    assert used_by("exec") == ("PUID", "PGID")


def test_an_empty_token_is_refused_and_points_to_no_login() -> None:
    error = mistake(JUPYTER_TOKEN="")
    assert error.what == "JUPYTER_TOKEN must not be empty"
    assert "JUPYTER_AUTH=none" in error.do


def test_a_token_and_a_token_file_at_once_are_refused() -> None:
    error = mistake(JUPYTER_TOKEN="hunter2", JUPYTER_TOKEN_FILE="/run/secrets/token")
    assert error.what == "JUPYTER_TOKEN and JUPYTER_TOKEN_FILE cannot both be set"
    assert "hunter2" not in str(error)


def test_a_secret_remembers_whether_it_came_by_value_or_by_file() -> None:
    assert read(JUPYTER_TOKEN="abc")["JUPYTER_TOKEN"].value == "abc"
    given = read(JUPYTER_TOKEN_FILE="/run/secrets/token")["JUPYTER_TOKEN"]
    assert (given.value, given.path) == (None, "/run/secrets/token")


def test_a_secret_never_shows_itself() -> None:
    assert "hunter2" not in repr(read(JUPYTER_TOKEN="hunter2")["JUPYTER_TOKEN"])


@pytest.mark.parametrize("token", ["two words", "line\nline", "tab\t", "schlüssel", "\udcff"])
def test_a_token_that_no_url_can_carry_is_refused_without_showing_it(token: Any) -> None:
    with pytest.raises(StartError) as caught:
        Settings.read({b"JUPYTER_TOKEN": token.encode("utf-8", "surrogateescape")}, LAB)
    assert "JUPYTER_TOKEN must be one line" in str(caught.value)
    assert token not in str(caught.value)


def test_a_relative_token_file_is_refused() -> None:
    error = mistake(JUPYTER_TOKEN_FILE="secrets/token")
    assert error.what == "JUPYTER_TOKEN_FILE must be an absolute path in the container"
    assert "/run/secrets/token" in error.do


@pytest.mark.parametrize("text", [HASH, "sha1:67c9e60bb8b6:9ffede0825894254b2e042ea597d771089e11aed"])
def test_a_password_hash_of_jupyters_is_taken(text: Any) -> None:
    assert read(JUPYTER_PASSWORD_HASH=text)["JUPYTER_PASSWORD_HASH"].value == text


@pytest.mark.parametrize(
    "text", ["secret", "argon2:$argon2id=19=10240,t=10,p=8", "argon2:eaten", HASH.replace("$v=19", "")]
)
def test_a_password_hash_whose_dollars_were_eaten_is_refused_with_the_cure(text: Any) -> None:
    error = mistake(JUPYTER_PASSWORD_HASH=text)
    assert "$$ in a compose file" in error.do
    assert text not in str(error)


@pytest.mark.parametrize(
    ("given", "used"),
    [("lab", "/lab/"), ("/lab", "/lab/"), ("/a//b/", "/a/b/"), ("/", "/"), ("/~u/p-1.x/", "/~u/p-1.x/")],
)
def test_a_base_url_begins_and_ends_with_one_slash(given: Any, used: Any) -> None:
    assert read(JUPYTER_BASE_URL=given)["JUPYTER_BASE_URL"] == used


@pytest.mark.parametrize("given", ["http://host/lab", "/a b/", "/a?b", "/a#b", "/ä/", "/a\n"])
def test_a_base_url_that_is_no_path_is_refused(given: Any) -> None:
    assert "JUPYTER_BASE_URL must be a path" in mistake(JUPYTER_BASE_URL=given).what


@pytest.mark.parametrize("given", ["yes", "true", "on", "2", "01", " 1"])
def test_a_switch_is_one_or_zero_and_nothing_else(given: Any) -> None:
    assert mistake(REQUIRE_GPU=given).what == "REQUIRE_GPU must be 1 or 0"


def test_a_switch_is_read() -> None:
    assert read(REQUIRE_GPU="1")["REQUIRE_GPU"] is True
    assert read(REQUIRE_GPU="0")["REQUIRE_GPU"] is False


@pytest.mark.parametrize("given", ["abc", "-1", "4294967295", "1000:1000", "$(id -u)"])
def test_an_id_that_is_no_id_is_refused_for_every_command(given: Any) -> None:
    with pytest.raises(StartError, match="PUID must be a whole number"):
        read(used_by("exec"), PUID=given)


def test_the_highest_id_is_taken() -> None:
    assert read(PUID="4294967294", PGID="0")["PUID"] == 4294967294


def test_an_unknown_mode_is_refused_with_the_modes_and_the_closest() -> None:
    error = mistake_of_mode("jupiter")
    assert error.what == "MODE must be one of: auto, jupyter, ssh, all, code"
    assert error.seen == "MODE=jupiter"
    assert "MODE=jupyter" in error.do


def test_a_command_given_as_mode_is_answered_with_the_command() -> None:
    assert "docker run IMAGE train" in mistake_of_mode("train").do


def mistake_of_mode(mode: Any) -> Any:
    with pytest.raises(StartError) as caught:
        read(("MODE",), MODE=mode)
    return caught.value


def test_the_closest_word_is_found_and_a_strange_one_is_not() -> None:
    assert closest("tarin", ("train", "bench")) == "train"
    assert closest("xyzzy", ("train", "bench")) == ""
