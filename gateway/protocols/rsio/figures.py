"""Figures of RS.io (`gateway.sdk.figures`)."""

from __future__ import annotations

from gateway.sdk.figures import Figure, StatusSection

SENDERS = StatusSection(
    "rsio",
    "RS.io, senders",
    (
        Figure("rsio.names", "gateway_rsio_names",
               "names of senders that are remembered, one for each publisher",
               look="it nears `options.names`, or with one token `options.token_names`: more senders than thought, or such as make up names",
               card="names", panel="Names of RS.io senders", legend="names"),
        Figure("rsio.fenced", "gateway_rsio_fenced_total",
               "senders refused or ended because another instance of their name began",
               look="it grows but at deploys: two programs have one name, or a stranger says it; the log says which",
               card="fenced senders", panel="Names of RS.io senders", legend="fenced",
               rare=True),
        Figure("rsio.forgotten", "gateway_rsio_forgotten_names_total",
               "names of senders that went for others, or found no place",
               look="it grows: senders can not resume; the log says `names of senders are forgotten`, and which option to raise",
               card="forgotten names", panel="Names of RS.io senders", legend="forgotten",
               rare=True),
    ),
    "with an RS.io listener",
)  # fmt: skip
