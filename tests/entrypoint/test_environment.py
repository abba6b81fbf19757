"""The environment of the user's processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from entrypoint.environment import parse_environ, read_container_environment, user_environment
from entrypoint.errors import StartError


def user(container: Any, extra: Any = None, keep_secrets: Any = False) -> Any:
    return user_environment(container, "user", "/home/user", extra or {}, keep_secrets)


def test_odd_names_and_values_survive_byte_for_byte() -> None:
    odd = {b"my.dotted-name": b" a\nb\xff=c $(id) 'q' \"w\" ", b"EMPTY": b"", b"\xc3\xa4": "中文".encode()}
    assert odd.items() <= user(odd).items()


def test_the_process_environment_is_split_at_zero_bytes() -> None:
    assert parse_environ(b"A=1\0B=x=y\0C=\0no-equals\0=x\0D=two\nlines\0") == {
        b"A": b"1",
        b"B": b"x=y",
        b"C": b"",
        b"D": b"two\nlines",
    }


def test_the_first_of_two_equal_names_counts_as_it_does_for_programs() -> None:
    assert parse_environ(b"A=1\0A=2\0") == {b"A": b"1"}


def test_the_environment_is_read_from_the_first_process(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "environ").write_bytes(b"A=\xff\0")
    assert read_container_environment(7, str(tmp_path)) == {b"A": b"\xff"}


def test_a_start_without_the_images_entrypoint_is_explained(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="environment cannot be read"):
        read_container_environment(7, str(tmp_path))


def test_the_user_gets_a_home_a_name_and_a_shell() -> None:
    environ = user({b"HOME": b"/root", b"USER": b"root", b"LOGNAME": b"root", b"SHELL": b"/bin/sh"})
    assert environ[b"HOME"] == b"/home/user"
    assert environ[b"USER"] == environ[b"LOGNAME"] == b"user"
    assert environ[b"SHELL"] == b"/bin/bash"


def test_the_path_of_the_container_stays_and_an_empty_one_is_replaced() -> None:
    assert user({b"PATH": b"/mine"})[b"PATH"] == b"/mine"
    assert user({b"PATH": b""})[b"PATH"].startswith(b"/opt/pytorch-cuda/bin:/opt/conda/envs/pytorch/bin:")
    assert user({})[b"PATH"].endswith(b":/bin")


SECRETS = {
    b"JUPYTER_TOKEN": b"t",
    b"JUPYTER_TOKEN_FILE": b"/t",
    b"JUPYTER_PASSWORD_HASH": b"h",
    b"CODE_TOKEN_FILE": b"/c",
}


def test_no_secret_and_no_place_of_one_reaches_a_service() -> None:
    assert not SECRETS.keys() & user(SECRETS).keys()


def test_settings_that_are_no_secret_stay() -> None:
    kept = {
        b"JUPYTER_PORT": b"8889",
        b"JUPYTER_CERT_FILE": b"/cert.pem",
        b"PUID": b"1000",
        b"SSH_PUBLIC_KEY": b"k",
    }
    assert kept.items() <= user(kept).items()


def test_a_command_that_is_run_unchanged_keeps_its_variables() -> None:
    assert SECRETS.items() <= user(SECRETS, keep_secrets=True).items()


@pytest.mark.parametrize("keep_secrets", [True, False])
def test_a_port_from_kubernetes_is_not_passed_on(keep_secrets: Any) -> None:
    container = {
        b"JUPYTER_PORT": b"tcp://10.0.0.1:80",
        b"SSH_PORT": b"tcp://10.0.0.1:22",
        b"OTHER_PORT": b"tcp://x",
    }
    environ = user(container, keep_secrets=keep_secrets)
    assert b"JUPYTER_PORT" not in environ
    assert b"SSH_PORT" not in environ
    assert environ[b"OTHER_PORT"] == b"tcp://x"


def test_what_the_start_adds_is_set() -> None:
    environ = user({b"NSS_WRAPPER_PASSWD": b"x"}, {"LD_PRELOAD": "libnss_wrapper.so", "NSS_WRAPPER_PASSWD": "/p"})
    assert (environ[b"LD_PRELOAD"], environ[b"NSS_WRAPPER_PASSWD"]) == (b"libnss_wrapper.so", b"/p")


def test_the_containers_own_mapping_is_not_changed() -> None:
    container = {b"JUPYTER_TOKEN": b"t", b"HOME": b"/root"}
    user(container)
    assert container == {b"JUPYTER_TOKEN": b"t", b"HOME": b"/root"}
