"""What `gateway send lumberjack` does beside what all protocols do."""

import ssl


def test_tls(listen, send, authority):
    """Over TLS, with a certificate of our own; a reader nobody vouches for gets none."""
    ours = authority.issue("web-1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("gateway.example"))
    context.load_verify_locations(authority.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    reader = listen("lumberjack", tls=context)
    run = send(
        "lumberjack", reader.address, "--generate", 50, "--tls",
        "--ca", authority.ca, "--cert", ours.certificate, "--key", ours.key,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert len(reader.payloads) == 50
    run = send("lumberjack", reader.address, "--tls")
    assert run.returncode == 1
    assert "certificate verify failed" in run.stderr
    assert len(reader.payloads) == 50
