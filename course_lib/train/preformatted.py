"""How does a table of plain text keep its columns in a notebook? In a <pre> that says its font itself."""

from html import escape


def preformatted(text: str) -> str:
    """The text as HTML, escaped, in a font of one width, also on pages whose style gives <pre> another."""
    return f'<pre style="font-family:monospace;line-height:1.3">{escape(text)}</pre>'
