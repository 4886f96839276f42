"""Certificates and keys of the node's ports, by the standard library's OpenSSL."""

from gateway.adapters.tls.certificates import CertificateError, ServerTls
from gateway.adapters.tls.ports import TlsPorts

__all__ = ["CertificateError", "ServerTls", "TlsPorts"]
