"""HTML for people: escaped, without scripts, light and dark, on a phone and on paper."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from ccal.reports.inline import colour_variables

__all__ = ["document", "escape", "section", "shorten", "table"]


def escape(text: str) -> str:
    """`text` as HTML that shows it, in an element or in a quoted attribute.

    >>> escape("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    # A surrogate cannot be written and a control character is no valid HTML.
    kept = (c if c in "\n\t" or not (c < " " or "\x7f" <= c <= "\x9f") else "\ufffd" for c in text)
    return html.escape("".join(kept).encode("utf-8", "replace").decode("utf-8"))


def shorten(text: str, limit: int = 280) -> str:
    """At most `limit` characters of `text`.

    >>> shorten("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def section(title: str, *parts: str) -> str:
    """A heading, which is escaped, and HTML below it; nothing if there is nothing below."""
    body = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{escape(title)}</h2>\n{body}\n</section>" if body else ""


def table(
    caption: str, head: Sequence[str], groups: Iterable[tuple[str, Sequence[Sequence[str]]]]
) -> str:
    """A table of HTML cells; the caption is text, and the first cell of a row names it.

    `groups` are pairs of a heading (HTML, "" for none) and the rows below it.
    """
    lines = [f"<caption>{escape(caption)}</caption>"]
    if head:
        cells = "".join(f'<th scope="col">{cell}</th>' for cell in head)
        lines.append(f"<thead><tr>{cells}</tr></thead>")
    for heading, rows in groups:
        lines.append("<tbody>")
        if heading:
            lines.append(
                f'<tr class="group"><th scope="rowgroup" colspan="{len(head)}">{heading}</th></tr>'
            )
        for first, *rest in rows:
            cells = "".join(f"<td>{cell}</td>" for cell in rest)
            lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
        lines.append("</tbody>")
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def document(title: str, *parts: str) -> str:
    """A whole page; `parts` are HTML. The policy forbids it to load or run anything."""
    body = "\n".join(part for part in parts if part)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{_CSS}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{body}
</main>
</body>
</html>
"""


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_CSS = f"""\
:root {{ color-scheme: light dark; {colour_variables(dark=False)} }}
@media screen and (prefers-color-scheme: dark) {{
  :root {{ {colour_variables(dark=True)} }}
}}
* {{ box-sizing: border-box; }}
body {{
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  overflow-wrap: anywhere;
}}
main {{ max-width: 54rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }}
h1 {{ font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0 1rem; }}
h2 {{ font-size: 1.2rem; line-height: 1.3; margin: 2.8rem 0 0.6rem; }}
h3 {{ font-size: 1rem; margin: 1.6rem 0 0.4rem; }}
p {{ margin: 0.5rem 0; max-width: 42rem; }}
.note, caption, figcaption {{ color: var(--muted); font-size: 0.875rem; }}
.warnings {{
  list-style: none; margin: 1rem 0; padding: 0.6rem 0.9rem;
  border: 1px solid var(--series-2); border-left-width: 5px; border-radius: 4px;
}}
table {{
  border-collapse: collapse; width: 100%; margin: 0.8rem 0; font-variant-numeric: tabular-nums;
}}
caption {{ text-align: left; caption-side: bottom; padding: 0.5rem 0 0; }}
th, td {{
  padding: 0.35rem 0.5rem; text-align: right; vertical-align: baseline;
  border-bottom: 1px solid var(--grid); font-weight: 400;
}}
th:first-child, td:first-child {{ text-align: left; padding-left: 0; }}
th:last-child, td:last-child {{ padding-right: 0; }}
thead th {{ color: var(--muted); font-size: 0.875rem; vertical-align: bottom; }}
tr.group th {{ font-weight: 600; padding-top: 0.9rem; border-bottom: 0; }}
td, thead th {{ overflow-wrap: normal; }}
td {{ white-space: nowrap; }}
th {{ hyphens: auto; }}
td small, th small {{ color: var(--muted); font-weight: 400; }}
.name {{ overflow-wrap: anywhere; }}
dl {{
  display: grid; grid-template-columns: max-content 1fr; gap: 0.25rem 1.2rem; margin: 0.6rem 0;
}}
dt {{ color: var(--muted); }}
dd {{ margin: 0; min-width: 0; }}
figure {{ margin: 0.8rem 0; break-inside: avoid; }}
svg {{ display: block; width: 100%; height: auto; }}
svg * {{ stroke-linejoin: round; }}
svg text {{ font-family: inherit !important; }}
svg.narrow {{ display: none; max-width: 28rem; }}
ul.examples {{ list-style: none; margin: 0; padding: 0; }}
ul.examples > li {{
  display: grid; grid-template-columns: 15rem 1fr; gap: 0.5rem 1.5rem;
  padding: 0.9rem 0; border-bottom: 1px solid var(--grid); break-inside: avoid;
}}
.kind {{ color: var(--muted); font-size: 0.875rem; }}
.query {{ margin: 0; min-width: 0; }}
ol.hits {{
  display: grid; grid-template-columns: auto auto 1fr; align-content: start;
  list-style: none; margin: 0; padding: 0; min-width: 0;
}}
ol.hits li {{
  display: grid; grid-template-columns: subgrid; grid-column: 1 / -1; column-gap: 0.7rem;
  align-items: baseline; padding: 0.2rem 0.6rem; border-left: 3px solid transparent;
  font-variant-numeric: tabular-nums;
}}
ol.hits li.later {{ margin-top: 0.5rem; }}
ol.hits li.right {{ border-left-color: var(--series-3); }}
ol.hits li.right .shown {{ font-weight: 600; }}
ol.hits .rank, ol.hits .score {{
  color: var(--muted); font-size: 0.875rem; text-align: right; white-space: nowrap;
}}
.tick {{ color: var(--series-3); white-space: nowrap; font-size: 0.875rem; font-weight: 400; }}
ol.pictures {{ grid-template-columns: repeat(auto-fill, minmax(5.5rem, 1fr)); gap: 0.5rem; }}
ol.pictures li {{
  grid-column: auto; grid-template-columns: auto auto; justify-content: space-between; gap: 0.2rem;
  padding: 0.2rem; border: 2px solid transparent; border-radius: 4px;
}}
ol.pictures li.later {{ margin-top: 0; }}
ol.pictures .tick {{ white-space: normal; font-size: 0.72rem; }}
ol.pictures li .shown {{ grid-row: 1; grid-column: 1 / -1; }}
ol.pictures li.right {{ border-color: var(--series-3); }}
ol.strips img {{ display: block; width: 100%; max-width: none; height: auto; }}
img {{ display: block; max-width: 100%; max-height: 12rem; background: #fff; }}
.shown {{ min-width: 0; }}
@media (max-width: 37rem) {{
  svg.wide {{ display: none; }}
  svg.narrow {{ display: block; }}
  ul.examples > li {{ grid-template-columns: 1fr; }}
  th, td {{ padding: 0.35rem 0.25rem; font-size: 0.9rem; }}
  td small {{ display: block; }}
  dl {{ grid-template-columns: 1fr; gap: 0; }}
  dd {{ margin-bottom: 0.5rem; }}
}}
@media print {{
  body {{ font-size: 10pt; }}
  main {{ max-width: none; padding: 0; }}
  h2, h3 {{ break-after: avoid; }}
}}
"""
