"""Parts of tests of the gateway and of its plug-ins, a distribution of its own.

contract      ready tests for any protocol plug-in, to be inherited
daemon        a real `twistd gateway` in a process of its own
certificates  an authority, and certificates that it signs
settings      one of `listeners` without a configuration file
streams       bytes cut and damaged in every way
attacks       what a hostile peer costs, counted
http_attacks  attacks on any protocol in HTTP/1.1
disk          a disk that records each call, and fails where a test wants it to
crashes       what a crash would have left of such a disk
reactor       an event loop that a test turns by hand
bucket        object storage in memory
seaweed       a server of object storage on this machine
"""
