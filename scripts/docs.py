"""Write the table of variables into docs/configuration*.md: `python3 -m scripts.docs`.

The table comes from entrypoint/settings.py and stands between two marks; the rest of a page is written by hand.
tests/static/test_docs.py fails when a page and the table differ.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from entrypoint.settings import EVERY_COMMAND, MODES, TABLE, Setting
from scripts import names, ui

BEGIN = "<!-- variables: begin. Made by `python3 -m scripts.docs`; do not edit -->"
END = "<!-- variables: end -->"

_WITH_CODE = " (images `-code`)"
# What a reader must know of a setting beside its help.
NOTES = {
    "CODE_TOKEN": _WITH_CODE,
    "CODE_PORT": _WITH_CODE,
}


@dataclass(frozen=True)
class Page:
    """A page that holds the table, and the words of its language; English texts are the keys."""

    path: Path
    words: Mapping[str, str]

    def say(self, text: str) -> str:
        """Give a text in the page's language. A new or changed English text needs its translation."""
        if not self.words:
            return text
        if text not in self.words:
            raise ui.UserError(
                f"scripts/docs.py has no translation for {self.path.name}", text, "add it to the words of that page"
            )
        return self.words[text]


CHINESE = {
    "Variable": "变量",
    "Values": "取值",
    "Default": "默认值",
    "What it does": "作用",
    "Used by": "适用于",
    ", ": "、",
    " (images `-code`)": "（仅限 `-code` 镜像）",
    "1 to 65535": "1 到 65535",
    "0 to 4294967294": "0 到 4294967294",
    "`1` or `0`": "`1` 或 `0`",
    "an absolute path in the container": "容器内的绝对路径",
    "a path": "URL 路径",
    "text": "文本",
    "visible ASCII characters without blanks": "可见 ASCII 字符，不含空白",
    "a hash as Jupyter writes it": "Jupyter 生成的哈希",
    "no command": "未给出命令时",
    "every command": "所有命令",
    "every mode": "所有模式",
    "what starts when no command is given": "没有给出命令时启动什么",
    "the token for logging in; without one a random token is made": "登录令牌；不设置则随机生成",
    "log in with a password: what `jupyter server password` wrote": "密码登录：`jupyter server password` 写出的哈希",
    "none: anybody who reaches the port may log in": "none：能访问该端口的人都能直接进入",
    "JupyterLab's port in the container": "JupyterLab 在容器内的端口",
    "the path below which JupyterLab answers": "JupyterLab 的 URL 前缀",
    "certificate (PEM) for HTTPS": "HTTPS 证书（PEM）",
    "private key (PEM) for HTTPS": "HTTPS 私钥（PEM）",
    "the password for VS Code in the browser; without one it is made": "浏览器版 VS Code 的密码；不设置则随机生成",
    "port of VS Code in the browser, in the container": "浏览器版 VS Code 在容器内的端口",
    "public keys that may log in, one a line": "允许登录的公钥，每行一个",
    "sshd's port in the container": "sshd 在容器内的端口",
    "run as this user id; else as the owner of /workspace/code": "以该用户 ID 运行；不设置则取 /workspace/code 的属主",
    "run with this group id": "以该组 ID 运行",
    "1: the user may use sudo without a password": "1：用户可以免密使用 sudo",
    "1: stop when the container has no GPU": "1：容器里没有 GPU 就停止启动",
}

PAGES = (
    Page(names.ROOT / "docs" / "configuration.md", {}),
    Page(names.ROOT / "docs" / "configuration.zh-CN.md", CHINESE),
)

_VALUES = {
    "port": "1 to 65535",
    "id": "0 to 4294967294",
    "switch": "`1` or `0`",
    "path": "an absolute path in the container",
    "base_url": "a path",
    "text": "text",
    "secret": "visible ASCII characters without blanks",
    "hash": "a hash as Jupyter writes it",
}


def main() -> int:
    """Write the table into every page where it differs."""
    for page in PAGES:
        old = page.path.read_text(encoding="utf-8")
        new = with_table(old, page)
        if new != old:
            page.path.write_text(new, encoding="utf-8")
            ui.say(f"Wrote the table of variables into {page.path}")
    return 0


def with_table(text: str, page: Page) -> str:
    """Give a page's text with what stands between the marks made anew."""
    between = re.compile(f"(?<={re.escape(BEGIN)}\n).*(?={re.escape(END)})", re.DOTALL)
    if not between.search(text):
        raise ui.UserError(
            f"{page.path.name} has no place for the table of variables",
            "one of the two marks is missing",
            f"write these two lines where it belongs:\n{BEGIN}\n{END}",
        )
    return between.sub(lambda _: table(page), text)


def table(page: Page) -> str:
    """Make the table, a row a setting."""
    head = [page.say(title) for title in ("Variable", "Values", "Default", "What it does", "Used by")]
    rows = [head, ["---"] * len(head), *(_row(setting, page) for setting in TABLE)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(setting: Setting, page: Page) -> list[str]:
    name = _list([setting.name, f"{setting.name}_FILE"] if setting.by_file else [setting.name], page)
    note = page.say(NOTES[setting.name]) if setting.name in NOTES else ""
    return [name, _values(setting, page), _default(setting), page.say(setting.help) + note, _used_by(setting, page)]


def _values(setting: Setting, page: Page) -> str:
    if setting.choices:
        return _list(setting.choices, page)
    return page.say(_VALUES[setting.kind])


def _default(setting: Setting) -> str:
    if setting.default is None:
        return ""
    return f"`{int(setting.default) if setting.kind == 'switch' else setting.default}`"


def _used_by(setting: Setting, page: Page) -> str:
    if setting.used_by == EVERY_COMMAND:
        return page.say("every command")
    if not setting.used_by:
        return page.say("no command")
    if setting.used_by[: len(MODES)] == MODES:
        more = setting.used_by[len(MODES) :]
        return page.say("every mode") + (page.say(", ") + _list(more, page) if more else "")
    return _list(setting.used_by, page)


def _list(words: Sequence[str], page: Page) -> str:
    return page.say(", ").join(f"`{word}`" for word in words)


if __name__ == "__main__":
    sys.exit(main())
