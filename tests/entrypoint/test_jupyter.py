"""JupyterLab's command line, login, health and messages."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from entrypoint import jupyter
from entrypoint.errors import StartError
from entrypoint.settings import Settings, used_by

HASH = "argon2:$argon2id$v=19$m=10240,t=10,p=8$mHmOnRtCFEp45uK8bsNgYg$2Vsf7H58Cmri5Naykl1+Zc2uAfHXPozk6"
KEPT = "0123456789abcdef" * 3


def settings(**environ: str) -> Any:
    return Settings.read({name.encode(): value.encode() for name, value in environ.items()}, used_by("jupyter"))


def login(kept: Any = None, options: Any = (), read: Any = None, **environ: str) -> Any:
    return jupyter.choose_login(settings(**environ), jupyter.parse_options(options), read, kept, lambda: "made")


def lab(
    *arguments: str, source: Any = "new", token: Any = "made", as_root: Any = False, ip: Any = "0.0.0.0", **environ: str
) -> Any:
    chosen = jupyter.Login(source, token)
    return jupyter.plan_lab(settings(**environ), arguments, chosen, as_root, "/run/pytorch-cuda/token", ip)


def test_a_first_start_makes_a_token() -> None:
    assert (login().source, login().token) == ("new", "made")


def test_a_restart_keeps_the_token() -> None:
    assert (login(kept=KEPT).source, login(kept=KEPT).token) == ("kept", KEPT)


@pytest.mark.parametrize("kept", ["", "short", KEPT + "\n", KEPT.upper(), "x" * 48])
def test_a_damaged_token_file_gets_a_new_token(kept: Any) -> None:
    assert login(kept=kept).source == "new"


def test_a_given_token_wins_over_the_kept_one() -> None:
    assert (login(kept=KEPT, JUPYTER_TOKEN="mine").source, login(JUPYTER_TOKEN="mine").token) == (
        "given",
        "mine",
    )


def test_a_token_by_file_is_read() -> None:
    assert login(read=lambda path: path.encode(), JUPYTER_TOKEN_FILE="/the/file").token == "/the/file"


def test_a_password_takes_the_place_of_a_token() -> None:
    chosen = login(kept=KEPT, JUPYTER_PASSWORD_HASH=HASH)
    assert (chosen.source, chosen.token, chosen.password_hash) == ("given", "", HASH)


def test_no_login_is_no_login() -> None:
    assert login(kept=KEPT, JUPYTER_AUTH="none") == jupyter.Login("none")


@pytest.mark.parametrize(
    "other", [{"JUPYTER_TOKEN": "t"}, {"JUPYTER_TOKEN_FILE": "/t"}, {"JUPYTER_PASSWORD_HASH": HASH}]
)
def test_no_login_and_a_login_at_once_are_refused(other: Any) -> None:
    with pytest.raises(StartError) as caught:
        login(JUPYTER_AUTH="none", **other)
    assert next(iter(other)).replace("_FILE", "") in caught.value.what


def test_a_token_among_jupyters_options_makes_none_of_ours() -> None:
    assert login(options=["--IdentityProvider.token=t"]).source == "options"
    assert json.loads(lab("--IdentityProvider.token=t", source="options").config) == {}


def test_made_tokens_differ_and_are_of_the_form_that_is_kept() -> None:
    first, second = jupyter.make_token(), jupyter.make_token()
    assert first != second
    assert login(kept=first).source == "kept"


def test_a_login_never_shows_itself() -> None:
    assert "hunter2" not in repr(jupyter.Login("given", "hunter2", "hunter2"))


def test_the_token_stands_in_the_configuration_and_not_on_the_command_line() -> None:
    planned = lab(token="hunter2")
    assert json.loads(planned.config)["IdentityProvider"]["token"] == "hunter2"
    assert not any("hunter2" in argument for argument in planned.argv)


def test_jupyterlab_is_started_for_a_container() -> None:
    argv = lab().argv
    assert argv[0] == "/opt/conda/envs/pytorch/bin/jupyter-lab"
    for option in (
        "--ServerApp.ip=0.0.0.0",
        "--ServerApp.port=8888",
        "--ServerApp.port_retries=0",
        "--ServerApp.open_browser=False",
        "--ServerApp.root_dir=/workspace",
        "--ServerApp.base_url=/",
    ):
        assert option in argv


def test_only_uid_0_asks_jupyter_to_allow_root() -> None:
    assert "--ServerApp.allow_root=True" in lab(as_root=True).argv
    assert not any("allow_root" in argument for argument in lab().argv)


def test_an_option_of_the_users_takes_the_place_of_ours() -> None:
    argv = lab("--ServerApp.port=9999", "--ServerApp.root_dir", "/data", "--debug").argv
    assert "--ServerApp.port=8888" not in argv
    assert not any(argument.startswith("--ServerApp.root_dir=") for argument in argv)
    assert not any(argument.startswith("--Application.log_level") for argument in argv)
    assert argv[-4:] == ("--ServerApp.port=9999", "--ServerApp.root_dir", "/data", "--debug")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--A.b=c=d"], {"A.b": "c=d"}),
        (["--A.b", "c"], {"A.b": "c"}),
        (["--A.b", "--C.d=e"], {"A.b": "", "C.d": "e"}),
        (["--port", "9"], {"ServerApp.port": "9"}),
        (["word", "-x"], {}),
        (["--A.b="], {"A.b": ""}),
    ],
)
def test_options_are_understood_as_jupyter_does(arguments: Any, found: Any) -> None:
    assert jupyter.parse_options(arguments) == found


def test_health_and_url_follow_the_settings() -> None:
    planned = lab(JUPYTER_PORT="8889", JUPYTER_BASE_URL="u/me")
    assert planned.probe == {"name": "jupyter", "probe": "http", "url": "http://127.0.0.1:8889/u/me/api"}
    assert "http://127.0.0.1:8889/u/me/lab?token=made" in planned.lines[0]
    assert "-p 9000:8889" in planned.lines[1]


def test_health_and_url_follow_the_users_options() -> None:
    planned = lab("--ServerApp.port=9", "--ServerApp.base_url=/b", "--ServerApp.certfile=/c", JUPYTER_PORT="8889")
    assert planned.probe["url"] == "https://127.0.0.1:9/b/api"
    assert "https://127.0.0.1:9/b/lab" in planned.lines[0]


@pytest.mark.parametrize(
    ("ip", "host"),
    [("*", "127.0.0.1"), ("::", "127.0.0.1"), ("172.17.0.2", "172.17.0.2"), ("fd00::2", "[fd00::2]")],
)
def test_health_asks_the_address_that_jupyter_listens_on(ip: Any, host: Any) -> None:
    assert lab(f"--ServerApp.ip={ip}").probe["url"] == f"http://{host}:8888/api"


def test_a_bad_port_among_jupyters_options_is_refused() -> None:
    with pytest.raises(StartError, match="88o8"):
        lab("--ServerApp.port=88o8")


def test_https_uses_both_files() -> None:
    planned = lab(JUPYTER_CERT_FILE="/c.pem", JUPYTER_KEY_FILE="/k.pem")
    assert "--ServerApp.certfile=/c.pem" in planned.argv
    assert "--ServerApp.keyfile=/k.pem" in planned.argv
    assert planned.probe["url"].startswith("https://")


@pytest.mark.parametrize("one", ["JUPYTER_CERT_FILE", "JUPYTER_KEY_FILE"])
def test_a_certificate_without_its_key_is_refused(one: Any) -> None:
    with pytest.raises(StartError) as caught:
        jupyter.check_pair(settings(**{one: "/x.pem"}))
    assert one not in caught.value.seen
    jupyter.check_pair(settings())


@pytest.mark.parametrize(
    ("source", "shown", "words"),
    [
        ("new", True, "?token="),
        ("kept", False, "/run/pytorch-cuda/token"),
        ("given", False, "given"),
        ("none", False, "no login"),
    ],
)
def test_a_token_is_printed_once_and_a_given_one_never(source: Any, shown: Any, words: Any) -> None:
    lines = lab(source=source, token="hunter2").lines
    assert any("hunter2" in line for line in lines) is shown
    assert words in lines[0]


def test_no_login_is_warned_of_and_a_login_is_not() -> None:
    assert "JUPYTER_AUTH=none" in lab(source="none").warnings[0]
    assert lab().warnings == ()


@pytest.mark.parametrize(
    ("route", "inet6", "address"),
    [
        ("Iface\neth0\t0\n", "fe80 02 40 20 80 eth0\n", "0.0.0.0"),
        ("Iface\n", "fd00 02 40 00 80 eth0\n", "*"),
        ("Iface\n", "0001 01 80 10 80       lo\n", "0.0.0.0"),
        ("Iface\n", "", "0.0.0.0"),
    ],
)
def test_it_listens_on_ipv6_too_where_there_is_nothing_else(
    tmp_path: Path, route: Any, inet6: Any, address: Any
) -> None:
    (tmp_path / "route").write_text(route)
    (tmp_path / "if_inet6").write_text(inet6)
    assert jupyter.listen_address(str(tmp_path)) == address


def test_without_ipv6_in_the_kernel_it_listens_on_ipv4(tmp_path: Path) -> None:
    (tmp_path / "route").write_text("Iface\n")
    assert jupyter.listen_address(str(tmp_path)) == "0.0.0.0"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    make = shlex.split("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x -days 2")
    subprocess.run([*make, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return str(cert), str(key)


def test_a_certificate_with_its_key_is_taken(pair: Any) -> None:
    assert jupyter.certificate_problem(*pair) is None
    jupyter.refuse_certificate(None)


def test_a_missing_certificate_is_named(pair: Any) -> None:
    problem = jupyter.certificate_problem("/no/such.pem", pair[1])
    assert problem == ("JUPYTER_CERT_FILE", "/no/such.pem: there is no such file in the container")


def test_a_file_that_is_no_certificate_is_refused(pair: Any, tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("not a certificate")
    problem = jupyter.certificate_problem(str(tmp_path / "cert.pem"), pair[1])
    assert problem is not None
    with pytest.raises(StartError, match=r"cert\.pem with"):
        jupyter.refuse_certificate(problem)


def test_an_encrypted_key_is_refused_and_does_not_ask(pair: Any, tmp_path: Path) -> None:
    locked = tmp_path / "key.pem"
    subprocess.run(["openssl", "ec", "-aes256", "-passout", "pass:x", "-in", pair[1], "-out", str(locked)], check=True)
    assert jupyter.certificate_problem(pair[0], str(locked)) is not None
