"""MkDocs hooks of the documentation site: pages made from the code, and links to files outside of docs.

On the site, such a link becomes its text in code style; a picture is copied to the site. A link to a file that does not
exist is left for MkDocs, which refuses it.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from scripts.reference_pages import PAGES

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(((?:\.\./)+[^)#]*)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code. They exist on the site only."""
    for name, make in PAGES.items():
        files.append(File.generated(config, name, content=make()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the links of one page that lead out of docs."""
    docs = Path(config.docs_dir)
    here = docs / Path(page.file.src_uri).parent

    def replaced(link: re.Match[str]) -> str:
        picture, text, address, _ = link.groups()
        target = (here / address).resolve()
        if target.is_relative_to(docs) or not target.exists():
            return link[0]
        if not picture:
            return text if "`" in text else f"`{text}`" if "/" in text or "." in text else text
        name = f"pictures/{target.name}"
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, abs_src_path=str(target)))
        return f"![{text}]({'../' * page.file.src_uri.count('/')}{name})"

    return _LINK.sub(replaced, markdown)
