"""The dashboard at `/ui`: pages over the same verbs that REST has, rendered here,
working without any script.

Every page module has one router. `register` puts them into the app; the last of them
answers what is at no page's address.
"""

from memagent.service.ui.pages import PAGES, register

__all__ = ["PAGES", "register"]
