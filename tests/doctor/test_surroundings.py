"""A clock that is wrong, names that are not found, a compiler that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor import surroundings
from doctor.runner import Ran
from tests.doctor.patients import answers, fine, patient, skipped, trouble, write


@pytest.mark.parametrize("now", [0.0, 1e9, 5e9])
def test_a_clock_that_is_far_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: float) -> None:
    monkeypatch.setattr(surroundings, "_now", lambda: now)
    trouble(surroundings.check_clock(patient(tmp_path)), "fail", "which cannot be", "timedatectl")


def test_a_clock_that_is_right(tmp_path: Path) -> None:
    fine(surroundings.check_clock(patient(tmp_path)), "UTC")


def test_a_time_zone_that_nobody_knows(tmp_path: Path) -> None:
    found = surroundings.check_clock(patient(tmp_path, {"TZ": "Asia/Shanghay"}))
    trouble(found, "warn", "TZ=Asia/Shanghay", "TZ=Asia/Shanghai")


@pytest.mark.parametrize("ran", [Ran(1, err="socket.gaierror"), Ran(-9, timed_out=True)])
def test_a_host_name_that_is_not_known(tmp_path: Path, ran: Ran) -> None:
    """Field report B068."""
    write(tmp_path, {"/etc/hostname": "nosuch\n"})
    found = surroundings.check_host_name(patient(tmp_path, run=answers(ran)))
    trouble(found, "warn", "nosuch: no", "--local-addr 127.0.0.1")


def test_a_host_name_that_is_known(tmp_path: Path) -> None:
    fine(surroundings.check_host_name(patient(tmp_path, run=answers(Ran(0, "172.17.0.2\n")))), "172.17.0.2")


def test_no_server_for_names(tmp_path: Path) -> None:
    write(tmp_path, {"/sys/class/net/eth0": "", "/etc/resolv.conf": "search lan\n"})
    trouble(surroundings.check_dns(patient(tmp_path)), "warn", "names no server", "--dns")


def test_a_server_for_names(tmp_path: Path) -> None:
    write(tmp_path, {"/sys/class/net/eth0": "", "/etc/resolv.conf": "nameserver 10.0.0.1\n"})
    fine(surroundings.check_dns(patient(tmp_path)), "10.0.0.1")


def test_without_a_network_no_names_are_missed(tmp_path: Path) -> None:
    write(tmp_path, {"/sys/class/net/lo": ""})
    skipped(surroundings.check_dns(patient(tmp_path)), "--network none")


@pytest.mark.parametrize("wish", ["^lo", "eth0,eth1", "ens5"])
def test_gloo_takes_one_plain_name(tmp_path: Path, wish: str) -> None:
    """Field report B068: the value that NCCL wants breaks gloo."""
    write(tmp_path, {"/sys/class/net/eth0": "", "/sys/class/net/lo": ""})
    found = surroundings.check_interfaces(patient(tmp_path, {"GLOO_SOCKET_IFNAME": wish}))
    trouble(found, "fail", f"GLOO_SOCKET_IFNAME={wish}", "GLOO_SOCKET_IFNAME=eth0")


def test_nccl_finds_no_interface(tmp_path: Path) -> None:
    write(tmp_path, {"/sys/class/net/eth0": "", "/sys/class/net/lo": ""})
    found = surroundings.check_interfaces(patient(tmp_path, {"NCCL_SOCKET_IFNAME": "ib0,ens"}))
    trouble(found, "fail", "NCCL_SOCKET_IFNAME=ib0,ens", "^lo,docker")


@pytest.mark.parametrize("wish", ["eth", "=eth0", "^lo,docker", "ib0,eth0"])
def test_nccl_takes_beginnings_lists_and_exclusions(tmp_path: Path, wish: str) -> None:
    write(tmp_path, {"/sys/class/net/eth0": "", "/sys/class/net/lo": ""})
    fine(surroundings.check_interfaces(patient(tmp_path, {"NCCL_SOCKET_IFNAME": wish})))


def test_no_compiler(tmp_path: Path) -> None:
    """Field report B062."""
    found = surroundings.check_compiler(patient(tmp_path, {"PATH": str(tmp_path)}))
    trouble(found, "warn", "no gcc and no g++", "/usr/bin")


def test_a_compiler(tmp_path: Path) -> None:
    for name in ("gcc", "g++"):
        (tmp_path / name).touch(0o755)
    fine(surroundings.check_compiler(patient(tmp_path, {"PATH": str(tmp_path)})))
