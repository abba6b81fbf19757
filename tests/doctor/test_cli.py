"""doctor as a program: its output, its exit status, and that no bad input stops it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from doctor import cli, examine, findings, gpu, report
from doctor.patient import Patient
from doctor.secrets import HIDDEN, without_secrets

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads(Path(__file__).with_name("schema.json").read_text())


def doctor(*arguments: str, environ: Mapping[str, str] | None = None, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "doctor", *arguments],
        cwd=ROOT,
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


def test_the_json_is_what_its_schema_says() -> None:
    done = doctor("--json")
    told = json.loads(done.stdout)
    # JupyterLab brings it, so the test image has it.
    pytest.importorskip("jsonschema").validate(told, SCHEMA)
    assert done.returncode == int(any(check["status"] == "fail" for check in told["checks"]))
    assert not done.stderr


def test_it_is_quick_and_imports_no_torch() -> None:
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "doctor"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert time.monotonic() - begun < 5
    imported = set(re.findall(r"\|\s+(\S+)$", done.stderr, re.MULTILINE))
    assert "doctor.gpu" in imported and not imported & {"torch", "numpy", "pip"}


def test_names_of_checks_are_unique(tmp_path: Path) -> None:
    names = [one.name for one in examine.examine(Patient(environ={}, root=str(tmp_path)))]
    assert len(set(names)) == len(names) == len(examine.CHECKS)


def test_every_check_has_a_test_that_makes_it_find_something() -> None:
    """A test that calls the check and `trouble(...)`, which reads the status, what was seen and the remedy."""
    # Of these two all that can be told is a fact; other checks tell the troubles that follow from it.
    never = {"check_mig", "check_host_keys"}
    tests = [
        {getattr(node, "attr", "") or getattr(node, "id", "") for node in ast.walk(test)}
        for path in Path(__file__).parent.glob("test_*.py")
        for test in ast.parse(path.read_text()).body
        if isinstance(test, ast.FunctionDef)
    ]
    wanted = {check.__name__ for check in (*examine.CHECKS, *examine.DEEP)} - never
    assert not {name for name in wanted if not any({name, "trouble"} <= test for test in tests)}


@pytest.mark.parametrize("status", ["ok", "warn", "skip"])
def test_only_a_failure_is_a_failure(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    found = [findings.Finding("x", status, "seen", "why", "do")]
    monkeypatch.setattr(cli, "examine", lambda *_: found)
    assert cli.main([], {}) == 0
    found.append(findings.fail("y", "seen", "why", "do"))
    assert cli.main([], {}) == 1


def test_a_check_that_breaks_does_not_take_the_others_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def check_something(patient: Patient) -> findings.Finding:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(examine, "CHECKS", (check_something, gpu.check_wsl))
    broken, other = examine.examine(Patient(environ={}, root=str(tmp_path)))
    assert (broken.name, broken.status, other.status) == ("something", "fail", "ok")
    assert "ZeroDivisionError: oops" in broken.seen


@pytest.mark.parametrize("locale", ["C", "POSIX", "de_DE.ISO-8859-1", "zh_CN.GBK", "nonsense"])
def test_any_locale_will_do(locale: str) -> None:
    environ = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TZ": "Ünï/中文", "LANG": locale}
    done = doctor(environ=environ)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done
    assert "TZ=" in done.stdout


@pytest.mark.parametrize("where", ["| head -c 20", ">&-", "| true"])
def test_a_reader_that_went_away_is_no_error(where: str) -> None:
    line = f"'{sys.executable}' -m doctor {where}"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_an_unknown_option_is_explained() -> None:
    done = doctor("--jason")
    assert done.returncode == 2 and "--json" in done.stderr


def test_secrets_are_taken_out_of_every_part() -> None:
    environ = {
        "JUPYTER_TOKEN": "tok-123456",
        "MY_PASSWORD": "pass word",
        "HF_TOKEN": "hf_abcdef",
        "JUPYTER_TOKEN_FILE": "/run/secrets/token",
        "API_KEY": "1",
    }
    found = findings.fail("x", "tok-123456 /run/secrets/token", "a pass word", "http://me:hf_abcdef@proxy:1/ 1")
    (clean,) = without_secrets([found], environ)
    assert clean.seen == f"{HIDDEN} /run/secrets/token"
    assert clean.why == f"a {HIDDEN}"
    assert clean.remedy == f"http://{HIDDEN}@proxy:1/ 1"


def test_the_text_shows_what_to_do_for_what_is_not_well() -> None:
    found = [findings.ok("a", "fine"), findings.warn("b", "odd", "because", "mend it"), findings.skip("c", "reason")]
    lines = report.as_text(found).splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["ok", "a", "fine"],
        ["warn", "b", "odd"],
        ["why:", "because"],
        ["do:", "mend", "it"],
    ]
    assert lines[-1] == "1 ok, 1 warn, 0 fail, 1 skip"
