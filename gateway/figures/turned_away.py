"""Figures, panels and conditions of a question: who is turned away?"""

from __future__ import annotations

from gateway.figures.kinds import Condition, Question
from gateway.sdk.figures import Figure

_CERTIFICATE = "docs/operations.md#before-the-first-start-and-when-something-is-odd"
_CRL = "docs/security.md#revoked-certificates"
_NEW_ONE = "put a new one in its place, it is read by itself"
_NEW_CRL = "put its authority's new one in its place, it is read by itself"

_FIGURES = (
    Figure("listeners.rejected", "gateway_rejected_connections_total{listener,protocol,reason}",
           "connections rejected before their protocol began (limits, TLS, PROXY); `failure`: the protocol's code raised, the log has the traceback",
           panel="Rejected"),
    Figure("", "gateway_refusals_total{key}",
           "connections closed for what they sent, by the configuration key of the limit; `none` for a breach of the protocol",
           look="it grows: the log names peer, rule and limit",
           panel="Closed for what they sent"),
    Figure("", "gateway_wrong_credentials_total{listener}",
           "wrong tokens and passwords; `admin` is the admin port. Their answers wait, from the second of an address on up to 5 s",
           panel="Wrong tokens and passwords"),
    Figure("freshness.certificates", "gateway_certificate_valid_seconds{listener}",
           "time until a listener's certificate ends, below 0 if it has; only for listeners with TLS",
           panel="Certificates", legend="{{listener}}"),
    Figure("", "gateway_client_crl_valid_seconds{listener,expired}",
           "time until the [CRL](security.md#revoked-certificates) for client certificates ends, below 0 if it has; only for listeners with `tls.client_crl`. `expired` is `tls.client_crl_expired`",
           panel="Certificates", legend="{{listener}} CRL"),
)  # fmt: skip

_CONDITIONS = (
    Condition("GatewayCertificateEnded", "page", "5m",
              "gateway_certificate_valid_seconds < 86400",
              "A certificate, of a listener or of forward, ends within a day, or has ended; the other side refuses it then.",
              _NEW_ONE, runbook=_CERTIFICATE),
    Condition("GatewayCertificateEnds", "morning", "1h",
              "gateway_certificate_valid_seconds < 14 * 86400 and gateway_certificate_valid_seconds >= 86400",
              "A certificate, of a listener or of forward, ends within two weeks.",
              _NEW_ONE, runbook=_CERTIFICATE),
    Condition("GatewayCrlEnded", "page", "5m",
              'gateway_client_crl_valid_seconds{expired="refuse"} < 4 * 3600',
              "The CRL that a listener looks client certificates up in ends within four hours, or has ended; clients with certificates are refused then.",
              _NEW_CRL, runbook=_CRL),
    Condition("GatewayCrlEnds", "morning", "1h",
              'gateway_client_crl_valid_seconds < 7 * 86400 unless gateway_client_crl_valid_seconds{expired="refuse"} < 4 * 3600',
              "The CRL that a listener looks client certificates up in ends within a week; or has ended, with tls.client_crl_expired: accept.",
              _NEW_CRL, runbook=_CRL),
    Condition("GatewayTurnsAway", "morning", "30m",
              "sum by (instance, reason) (rate(gateway_rejected_connections_total[10m])) > 0.1",
              "Connections are rejected, one in ten seconds or more.",
              "the label says the reason, the log names the peers",
              runbook="docs/symptoms.md#when-writers-hang-or-are-sent-away"),
    Condition("GatewayGuessing", "morning", "10m",
              "rate(gateway_wrong_credentials_total[10m]) > 0.1",
              "Somebody tries tokens or passwords.",
              "the log has the address; close the port to it",
              runbook="docs/security.md#who-may-connect-who-may-look"),
)  # fmt: skip

TURNED_AWAY = Question("Who is turned away?", _FIGURES, conditions=_CONDITIONS)
