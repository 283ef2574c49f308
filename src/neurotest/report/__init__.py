"""Reports: one self-contained HTML file made from a run, nothing else.

A page is built from the sections that apply to its run. A new section is one file here, a function with the decorator
`section`, and one fragment with what it shows, `templates/NAME.html.j2`; nothing else has to know of it. Where the file spells
out the commands of its sections, only their pages import it. Sections of other packages come by the entry point group
`neurotest.section`, with a folder `templates` of their own.
"""

from neurotest.report.section import write_report

__all__ = ["write_report"]
