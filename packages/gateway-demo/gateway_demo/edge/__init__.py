"""`gateway demo --edge`: two edges, a hub, and a bad line between them.

    senders ─► shop-17 ══ line ══╗
                                 ╠══► hub ─► Spark job ─► tables
    senders ─► shop-18 ══ line ══╝

On the way shop-17's line is cut for a while, and shop-18 is killed.

    setup      the demo's directory, certificates, ports and configurations
    line       the line of an edge, which can be cut
    processes  the child processes: hub, edges, job, senders
    progress   how far each edge's events have come
    faults     what is cut and killed, and when
    run        all of it, and the proof
"""
