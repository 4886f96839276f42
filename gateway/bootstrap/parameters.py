"""The numbers that the application works with, from the settings that people write."""

from __future__ import annotations

from typing import Final

from gateway.app.runtime.parameters import (
    DrainParameters,
    ExchangeParameters,
    MirrorParameters,
    NodeParameters,
    PageParameters,
    StormParameters,
    TakeoverParameters,
    UsageParameters,
    ZoneParameters,
)
from gateway.bootstrap.descriptors import UNLIMITED, Descriptors
from gateway.core.pacing.accounts import AccountLimits
from gateway.core.stream.machine import StreamParameters
from gateway.core.wire.packets import Backoff, Limits
from gateway.ports.zone_links import ZoneLinkLimits
from gateway.settings import Settings

HIGH_WATER_BYTES: Final = 64 * 1024
"""What a transport may hold back before its session is left waiting: enough for a whole bandwidth-delay product of
50 Mbit/s at 10 ms, and little enough that ten thousand stuck clients hold 640 MB at the very worst."""

BATCH_BYTES: Final = 64 * 1024
"""Largest message a node writes, unless a single packet is larger: small enough to be parsed without a pause."""

DRAIN_SETTLE: Final = 2.0
"""Seconds a session gets to have its last packets acknowledged before it is told to go: several slow round trips."""

RESTORE_GRACE_LEASES: Final = 3
"""Leases after a loss of writes for which an unknown session is asked to come again: by then every node has either
restored its sessions or expired."""

TOKEN_RENEWAL_SHARE: Final = 0.5
"""Share of a token's life after which a connected client is handed a new one: it survives one missed renewal."""


def zone_limits(settings: Settings) -> ZoneLinkLimits:
    """Say what a link to another cluster may cost."""
    return ZoneLinkLimits(byte_rate=settings.zone_byte_rate, message_rate=settings.zone_message_rate)


def parameters_of(settings: Settings, *, shared_grid: bool, descriptors: Descriptors = UNLIMITED) -> NodeParameters:
    """Turn settings into the numbers the application works with.

    Args:
        settings: checked already.
        shared_grid: whether the grid outlives the node; if not, clients are told that their sessions do not either.
        descriptors: what the process may open: it may have no room for as many connections as the settings allow.
    """
    return NodeParameters(
        replicated=settings.replication and shared_grid,
        window=settings.window_default,
        max_window=settings.window_maximum,
        handshake_timeout=settings.handshake_timeout,
        session=StreamParameters(
            resend_packets=settings.limit_resend_packets,
            resend_bytes=settings.limit_resend_bytes,
            message_bytes=BATCH_BYTES,
            ack_packets=settings.ack_packets,
            ack_delay=settings.ack_delay,
            ping_interval=settings.ping_interval,
            ping_timeout=settings.ping_timeout,
        ),
        limits=Limits(
            message_bytes=settings.limit_message_bytes,
            value_bytes=settings.limit_value_bytes,
            requests=settings.limit_requests,
            selections=settings.limit_selections,
            selection_bytes=settings.limit_selection_bytes,
            resend_packets=settings.limit_resend_packets,
            resend_bytes=settings.limit_resend_bytes,
            questions=settings.limit_questions,
            handlers=settings.limit_handlers,
        ),
        request_bytes=settings.limit_request_bytes,
        node_request_bytes=settings.limit_node_request_bytes,
        outbox_packets=settings.limit_outbox_packets,
        outbox_bytes=settings.limit_outbox_bytes,
        high_water=HIGH_WATER_BYTES,
        packet_rate=settings.rate_packets,
        packet_burst=settings.rate_burst,
        new_topic_packets=settings.new_topic_packets,
        byte_rate=settings.rate_bytes,
        byte_burst=settings.rate_bytes_burst,
        token_life=settings.token_life + settings.token_leeway,
        usage=UsageParameters(
            address=AccountLimits(
                connections=descriptors.address_connections(
                    settings.limit_address_connections, of=settings.limit_connections
                ),
                handshakes=settings.rate_address_handshakes,
                packets=settings.rate_address_packets,
                publish_bytes=settings.rate_address_publish_bytes,
            ),
            principal=AccountLimits(
                connections=settings.limit_principal_sessions,
                handshakes=settings.rate_principal_handshakes,
                packets=settings.rate_principal_packets,
                publish_bytes=settings.rate_principal_publish_bytes,
                selections=settings.limit_principal_selections,
                topics=settings.rate_principal_topics,
                absent=settings.limit_principal_disconnected,
                absent_bytes=settings.limit_principal_disconnected_bytes,
                stored_bytes=settings.limit_principal_session_bytes,
                buffer_bytes=settings.limit_principal_buffer_bytes,
            ),
            node=AccountLimits(
                connections=descriptors.connections(settings.limit_connections),
                packets=settings.rate_node_packets,
                publish_bytes=settings.rate_node_publish_bytes,
                selections=settings.limit_node_selections,
                absent=settings.limit_disconnected,
                absent_bytes=settings.limit_disconnected_bytes,
                stored_bytes=settings.limit_session_bytes,
                buffer_bytes=settings.limit_buffer_bytes,
            ),
            exempt=settings.limit_exempt,
            exempt_handshakes=settings.rate_exempt_tls_handshakes,
        ),
        partition_topics=settings.limit_partition_topics,
        partition_bytes=settings.limit_partition_bytes,
        exchanges=ExchangeParameters(
            questions=settings.limit_node_questions,
            longest=settings.question_timeout_maximum,
            partition_questions=settings.limit_partition_questions,
            partition_bytes=settings.limit_partition_question_bytes,
        ),
        pages=PageParameters(
            values=settings.limit_page_values, bytes=settings.limit_page_bytes, at_once=settings.limit_node_pages
        ),
        storms=StormParameters(
            admission_rate=settings.admission_rate,
            admission_wait=settings.admission_wait,
            claim_rate=settings.claim_rate,
            claims_at_once=settings.claims_at_once,
        ),
        token_renewal=settings.token_life * TOKEN_RENEWAL_SHARE,
        revocations=settings.limit_revocations,
        credential_notice=settings.credential_notice,
        counted_roots=settings.metrics_topics,
        topic_depth=settings.topic_depth,
        replay_events=settings.replay_events,
        lease=settings.lease,
        renew=settings.lease_renew,
        reap=settings.reap_interval,
        restore_rate=settings.restore_rate,
        restore_grace=settings.lease * RESTORE_GRACE_LEASES,
        backoff=Backoff(
            initial=settings.backoff_initial, maximum=settings.backoff_maximum, stable_after=settings.backoff_stable
        ),
        drain=DrainParameters(
            batch=settings.drain_batch,
            interval=settings.drain_interval,
            jitter=settings.drain_jitter,
            settle=DRAIN_SETTLE,
            timeout=settings.drain_timeout,
        ),
        cluster_mode=settings.cluster_mode,
        cluster_name=settings.cluster or "",
        zones=ZoneParameters(shares=settings.zone_shares, limits=zone_limits(settings)),
        mirror=MirrorParameters(
            backup=settings.backup,
            mode=settings.mirror,
            patience=settings.mirror_patience,
            failure_domain=settings.failure_domain,
            # What the sessions of a node may take there.
            copies_bytes=settings.limit_buffer_bytes + settings.limit_disconnected_bytes
            if settings.limit_buffer_bytes and settings.limit_disconnected_bytes
            else 0,
        ),
        takeover=TakeoverParameters(
            heartbeat=settings.heartbeat,
            suspect_after=settings.suspect_after,
            confirm=settings.confirm,
            transient_wait=settings.transient_wait,
        ),
    )
