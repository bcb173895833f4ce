"""All that a plug-in imports of the gateway, beside `gateway.event`.

The four protocols that come with the gateway live by the same rule, and a test holds it;
the rest of the gateway imports these modules like everybody.  docs/plugin.md builds a
plug-in step by step.  What nearly every one needs:

    protocol     its object: Protocol, Service, Port, Context, Statistics, Sender, …
    figures      a protocol's figures, declared once for metrics, status, page and manual
    section      the base of `listeners[].options`, and what a reload makes of a change
    fields       the kinds of values that options take
    batches      the ready server of protocols that acknowledge in order, or not at all
    interfaces   what a server sees of its connection and of the journal; Refusal, Memory

What a server of its own is made of:

    costs        the work of one turn, and a ceiling for messages that move no data
    refusal      what a peer is told, which `interfaces` gives as well
    pressure     pauses a connection while the journal must not be fed
    closing      the end of a connection
    deadlines    time-outs of many connections on one timer
    fair         a queue whose clients take turns
    http_server  the ready server of protocols in HTTP/1.1: requests that bring events
    http1        requests of bytes and answers, by h11
    http2        what a server of HTTP/2 needs beside the package h2

Options and limits:

    units        sizes, times and numbers, with bounds
    endpoint     addresses to listen on
    limits       `listeners[].limits`, and a protocol's own, made of them and its options

Events: their flaws, how they are read back, and files beside them:

    payload      finds the flaw of a JSON payload
    varint       writes varints
    native       the kernel in C, where it is installed
    publisher    publishers by name: the gateway's own feeds, for subscribers
    files        reads stored events back from journal, spool and archive
    arrow        columns of stored rows, as numpy has them
    disk         the file system calls that durability rests on
    arrivals     takes the files that other gateways forward
    summed       lines of JSON behind a checksum

A client, its part of `gateway send`, and commands:

    sending      one run of `gateway send`
    source       the events that it sends
    command      where commands connect to; wrong use; text for a terminal
    sender       sends until it is acknowledged, on connection after connection
    backoff      the pauses between its connections
    http_client  HTTP requests to other services, bounded in time, number and size
    outgoing     outgoing connections: TCP, TLS, WebSocket, HTTP/2
    websocket_client    what `outgoing` has for WebSocket
    http2_client        … and for HTTP/2
"""
