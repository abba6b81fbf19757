"""Public keys: from where they are taken, which lines are good, and what is said of the others."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from entrypoint import keys
from entrypoint.keys import BadLineError, Keys, Source, check_line, parse
from entrypoint.secrets import UnreadableError, read_as_user
from entrypoint.settings import Given

NO_KEY = Given("SSH_PUBLIC_KEY")


def blob(kind: str, *fields: bytes) -> str:
    parts = (kind.encode(), *fields)
    return base64.b64encode(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).decode()


def line(kind: str, *fields: bytes) -> str:
    return f"{kind} {blob(kind, *fields)}"


def rsa(bits: int) -> str:
    return line("ssh-rsa", b"\x01\x00\x01", b"\x00" + (1 << (bits - 1)).to_bytes(bits // 8, "big"))


ED25519 = line("ssh-ed25519", bytes(32))
OTHER = line("ssh-ed25519", bytes(31) + b"\x01")
P256 = line("ecdsa-sha2-nistp256", b"nistp256", b"\x04" + bytes(64))
GOOD = (
    ED25519,
    f"{ED25519} me@laptop",
    f'{ED25519} a comment with 中文, " and #',
    f"{ED25519}\tme",
    f"ssh-ed25519\t{blob('ssh-ed25519', bytes(32))}\tme",
    rsa(1024),
    rsa(4096),
    P256,
    line("ecdsa-sha2-nistp384", b"nistp384", b"\x04" + bytes(96)),
    line("ecdsa-sha2-nistp521", b"nistp521", b"\x04" + bytes(132)),
    line("sk-ssh-ed25519@openssh.com", bytes(32), b"ssh:"),
    line("sk-ecdsa-sha2-nistp256@openssh.com", b"nistp256", b"\x04" + bytes(64), b"ssh:"),
    f"restrict,pty {ED25519}",
    f'from="10.0.0.0/8,*.example.org",NO-PTY {ED25519} me',
    f'command="echo \\"a, b\\" c" {ED25519}',
    f'cert-authority,principals="user" {ED25519}',
)


@pytest.mark.parametrize("text", GOOD)
def test_a_line_that_sshd_takes_is_good(text: str) -> None:
    check_line(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "a private key.*ends in .pub"),
        ("-----BEGIN RSA PRIVATE KEY-----", "a private key"),
        ("-----BEGIN PRIVATE KEY-----", "a private key"),
        ("-----BEGIN ENCRYPTED PRIVATE KEY-----", "a private key"),
        ("PuTTY-User-Key-File-3: ssh-ed25519", "a private key"),
        ("---- BEGIN SSH2 PUBLIC KEY ----", "ssh-keygen -i -f FILE"),
        ("-----BEGIN PUBLIC KEY-----", "-m PKCS8"),
        ("$(cat ~/.ssh/id_ed25519.pub)", "no shell has run"),
        ("~/.ssh/id_ed25519.pub", "SSH_PUBLIC_KEY_FILE"),
        ("/home/me/.ssh/id_ed25519.pub", "SSH_PUBLIC_KEY_FILE"),
        ("ssh-dss AAAAB3NzaC1kc3M= me", "DSA"),
        ("ssh-ed25519", "damaged"),
        ("ssh-ed25519 ", "damaged"),
        (ED25519[:-8], "damaged or cut off"),
        (ED25519.replace("AAAA", "AA!A", 1), "damaged or cut off"),
        (f"ssh-rsa {blob('ssh-ed25519', bytes(32))}", "type and its content differ"),
        (line("ssh-ed25519", bytes(31)), "wrong length"),
        (line("ssh-ed25519", bytes(32), b"more"), "wrong length"),
        (line("ssh-rsa", b"\x03"), "wrong length"),
        (line("ecdsa-sha2-nistp256", b"nistp384", b"\x04" + bytes(96)), "wrong length"),
        (line("sk-ssh-ed25519@openssh.com", bytes(32)), "wrong length"),
        (line("sk-ssh-ed25519@openssh.com"), "wrong length"),
        (rsa(768), "less than 1024 bits"),
        (f"no-such-option {ED25519}", "neither a key type nor an option"),
        (f"hunter2 {ED25519}", "neither a key type nor an option"),
        (f'from="10.0.0.1 {ED25519}', "quotation mark"),
        ("hunter2", "neither a public key nor a comment"),
        ("restrict ssh-hunter2 AAAA", "no key type follows"),
        ("ssh-ed25519-cert-v01@openssh.com AAAA", "neither"),
        (f"{ED25519} \0", "NUL"),
    ],
)
def test_a_line_that_sshd_would_pass_over_is_explained_without_a_word_of_it(text: str, why: str) -> None:
    with pytest.raises(BadLineError, match=why) as caught:
        check_line(text)
    for word in ("hunter2", "AAAA", "laptop"):
        assert word not in str(caught.value)


def test_bad_lines_are_named_by_file_and_line_and_the_others_work() -> None:
    text = f"# mine\r\n\r\n{ED25519} me\r\nnonsense\r\n{P256}\r\n"
    found = parse([Source("/k", text.encode())])
    assert found.lines == (f"{ED25519} me", P256)
    assert found.problems == ("/k, line 4: it is neither a public key nor a comment",)
    assert found.render() == f"{ED25519} me\n{P256}\n".encode()


def test_old_macintosh_and_windows_line_ends_and_a_byte_order_mark_are_taken() -> None:
    for end in ("\n", "\r\n", "\r"):
        assert parse([Source("x", f"\ufeff{ED25519}{end}{P256}{end}".encode())]).lines == (ED25519, P256)


def test_bytes_that_are_no_utf_8_survive_in_a_comment() -> None:
    assert parse([Source("x", ED25519.encode() + b" m\xe9")]).render() == ED25519.encode() + b" m\xe9\n"


def test_a_private_key_is_told_of_once_and_not_line_by_line() -> None:
    text = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\nhunter2\n-----END OPENSSH PRIVATE KEY-----\n"
    found = parse([Source("SSH_PUBLIC_KEY", text.encode())])
    assert not found
    (problem,) = found.problems
    assert problem.startswith("SSH_PUBLIC_KEY, line 1: this is a private key")
    assert "hunter2" not in problem


def test_utf_16_is_explained() -> None:
    assert "PowerShell" in parse([Source("x", ED25519.encode("utf-16"))]).problems[0]


def test_a_key_that_was_given_twice_counts_once() -> None:
    found = parse([Source("a", ED25519.encode()), Source("b", f"{ED25519}\n{OTHER}\n".encode())])
    assert found.summary == "2 public keys may log in: 1 from a, 1 from b"


def test_no_key_is_a_reason_to_refuse() -> None:
    assert keys.refusal(Keys()) == "no key was given"
    assert keys.refusal(Keys(problems=("a", "b"))) == "a; b"
    assert keys.refusal(parse([Source("a", ED25519.encode())])) is None


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(keys, "FILE", str(tmp_path / "authorized_keys"))
    monkeypatch.setattr(keys, "FOLDER", str(tmp_path / "ssh_keys.d"))
    return tmp_path


def gather(place: Path, given: Given = NO_KEY) -> Keys:
    return keys.gather(given, str(place / "home"), read_as_user)


def test_keys_come_from_every_place(places: Path) -> None:
    all_keys = [line("ssh-ed25519", bytes([number]) * 32) for number in range(5)]
    (places / "home" / ".ssh").mkdir(parents=True)
    (places / "home" / ".ssh" / "authorized_keys").write_text(all_keys[1])
    (places / "authorized_keys").write_text(all_keys[2])
    (places / "ssh_keys.d").mkdir()
    (places / "ssh_keys.d" / "me.pub").write_text(all_keys[3])
    (places / "ssh_keys.d" / "me").write_text("-----BEGIN OPENSSH PRIVATE KEY-----")
    (places / "ssh_keys.d" / "..data.pub").write_text("not for us")
    (places / "given").write_text(all_keys[4])
    assert set(gather(places, Given("SSH_PUBLIC_KEY", value=all_keys[0])).lines) == set(all_keys[:4])
    by_file = gather(places, Given("SSH_PUBLIC_KEY", path=str(places / "given")))
    assert set(by_file.lines) == set(all_keys[1:])
    assert by_file.problems == ()


def test_what_cannot_be_read_is_named_and_the_rest_is_used(places: Path) -> None:
    (places / "home" / ".ssh").mkdir(parents=True)
    os.mkfifo(places / "home" / ".ssh" / "authorized_keys")
    (places / "authorized_keys").mkdir()
    (places / "ssh_keys.d").mkdir()
    (places / "ssh_keys.d" / "gone.pub").symlink_to("nowhere")
    found = gather(places, Given("SSH_PUBLIC_KEY", path="/no/such/file"))
    assert not found
    told = "\n".join(found.problems)
    assert "/no/such/file: there is no such file" in told
    assert "home/.ssh/authorized_keys: it is not a regular file" in told
    assert "authorized_keys: it is a folder; Docker makes one" in told
    assert "gone.pub: there is no such file" in told


def test_a_key_folder_that_is_a_file_is_named(places: Path) -> None:
    (places / "ssh_keys.d").write_text("")
    assert "ssh_keys.d: not a directory" in gather(places).problems[0]


def test_nothing_given_is_no_problem(places: Path) -> None:
    assert gather(places) == Keys()


def test_the_reason_of_the_reader_is_passed_on(places: Path) -> None:
    def read(path: str) -> Any:
        raise UnreadableError("a link on the way is not root's")

    found = keys.gather(Given("SSH_PUBLIC_KEY", path="/k"), "/none", read)
    assert found.problems == ("/k: a link on the way is not root's",)
