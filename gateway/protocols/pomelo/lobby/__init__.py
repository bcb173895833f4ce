"""Several gateways whose clients are reached as if they were connected to one.

`Lobby` carries out here and on the others what is asked of one of them; `Taken` is what
they do for it.  docs/adr/0033-lobby.md says why it is so.
"""
