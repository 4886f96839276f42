"""Certificates and keys of the node's ports, by the standard library's OpenSSL."""

from gateway.adapters.tls.certificates import CertificateError, FollowingContext, ServerTls
from gateway.adapters.tls.ports import TlsPorts

__all__ = ["CertificateError", "FollowingContext", "ServerTls", "TlsPorts"]
