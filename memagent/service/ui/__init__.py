"""The dashboard at `/ui`: pages over the verbs of REST, which work without any script."""

from memagent.service.ui.pages import register as register
