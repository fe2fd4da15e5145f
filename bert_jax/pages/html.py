"""The frame and the look of a page. It requests nothing from any host; texts of runs and corpora are escaped."""

import base64
import hashlib
import json
from html import escape
from pathlib import Path
from typing import Any

# Colors that differ for people who do not see red or green (Okabe and Ito), in the order of use.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
STYLE = Path(__file__).with_name("page.css")
# A browser that obeys this runs the scripts of the page alone, known by their hashes, and requests nothing, whatever a
# text in the page says. Vega compiles its expressions by eval.
POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; img-src data:;"
    " script-src 'unsafe-eval'"
)


def document(title: str, body: str, style: str = "", scripts: tuple[str, ...] = ()) -> str:
    """Returns a page.

    title: text.
    body, style: HTML and CSS.
    scripts: JavaScript, one after the other at the end of the page.
    """
    tags = "".join(f"<script>{script}</script>\n" for script in scripts)
    policy = " ".join([POLICY, *map(hash_of, scripts)])
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE.read_text()}{style}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        f"{body}\n{tags}</body>\n</html>\n"
    )


def hash_of(script: str) -> str:
    """Returns the name of a script in a policy."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def table(rows: list[list], heads: tuple[str, ...] = ()) -> str:
    """Returns a table of texts. heads: of its columns."""
    lines = [tuple(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows]
    if heads:
        lines.insert(0, tuple(f"<th>{escape(head)}</th>" for head in heads))
    body = "\n".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    return f"<table>\n{body}\n</table>"


def data(value: Any) -> str:
    """Returns a value as JSON that may stand in a script: it closes no tag."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
