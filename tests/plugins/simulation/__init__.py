"""A deterministic simulation of the gateway: one process, one thread, one seed.

    scheduler   the threads of a life, and time, which the seed moves
    disk        tears, forgets names, runs full, fails, hangs, rots
    life        one life of the gateway, from its start to a kill, a power cut, a stop
    reactor     the gateway's event loop: calls and sockets, in any order
    sockets     its kernel: ports, sockets, their buffers and ends
    listeners   `gateway.net` of a life, and what must hold of it
    network     the wire: slices, delays, half-closes, breaks connections
    ways        plain, TLS, WebSocket, behind a proxy: a sender has one
    tls         certificates, and the clients' TLS
    changing    certificates and definitions that somebody changes, or breaks
    clients     the real clients of the four protocols, which send again
    senders     hand batches to the journal themselves, some without events
    spark       takes files between any two steps
    judge       what was promised, held against every acknowledgement and every file
    bounds      the limits of memory and disk, at every step
    chain       each file names the one before it; at the end the audit agrees
    admin       status, metrics and SIGHUP at random steps
    errors      failures that are logged, or that a Deferred keeps: they end a seed
    settings    how the gateway of a seed is configured
    world       all of it, in the order that the seed chooses
    rebuilt     another world: one node whose machine is lost, a bucket, and a job

`python -m simulation` runs seeds for a minute; `SEED=…` replays one and prints its history,
`REBUILT=…` one of the other world.
"""
