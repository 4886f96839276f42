/**
 * Fields of packets, checked one by one (protocol section 2).
 *
 * @module
 */

import { RemoteProtocolError } from "./errors.js";

/** The largest id, count or version (protocol 2.5). */
export const MAX_NUMBER = Number.MAX_SAFE_INTEGER;

/**
 * @typedef {import("./packets.js").JsonObject} JsonObject
 * @typedef {import("./packets.js").BackoffAdvice} BackoffAdvice
 */

/**
 * @param {JsonObject} packet
 * @param {string} what
 * @returns {RemoteProtocolError}
 */
export function bad(packet, what) {
  return new RemoteProtocolError(typeof packet.type === "string" ? `${packet.type} packet: ${what}` : what);
}

/**
 * @template T
 * @param {JsonObject} packet
 * @param {string} name
 * @param {(packet: JsonObject, name: string) => T} read
 * @returns {T | null}
 */
export function optional(packet, name, read) {
  return packet[name] === undefined || packet[name] === null ? null : read(packet, name);
}

/**
 * @param {JsonObject} packet
 * @param {string} name
 * @returns {string}
 */
export function text(packet, name) {
  const value = packet[name];
  if (typeof value !== "string") throw bad(packet, `'${name}' must be a string`);
  return value;
}

/**
 * @param {JsonObject} packet
 * @param {string} name
 * @param {number} [least]
 * @returns {number}
 */
export function count(packet, name, least = 0) {
  const value = packet[name];
  if (!Number.isSafeInteger(value) || /** @type {number} */ (value) < least) {
    throw bad(packet, `'${name}' must be an integer from ${least} to ${MAX_NUMBER}`);
  }
  return /** @type {number} */ (value);
}

/**
 * @param {JsonObject} packet
 * @param {string} name
 * @returns {number}
 */
export function seconds(packet, name) {
  const value = packet[name];
  if (typeof value !== "number" || !(value >= 0) || !Number.isFinite(value)) {
    throw bad(packet, `'${name}' must be a number of seconds, not negative`);
  }
  return value;
}

/**
 * @param {JsonObject} packet
 * @param {string} name
 * @returns {BackoffAdvice}
 */
export function advice(packet, name) {
  const backoff = object(packet, name);
  return {
    initial: seconds(backoff, "initial"),
    maximum: seconds(backoff, "maximum"),
    stable_after: seconds(backoff, "stable_after"),
  };
}

/**
 * @param {JsonObject} packet
 * @returns {number | null}
 */
export function retryAfter(packet) {
  return optional(packet, "retry_after", seconds);
}

/**
 * @param {JsonObject} packet
 * @param {string} name
 * @returns {boolean}
 */
export function flag(packet, name) {
  const value = packet[name];
  if (typeof value !== "boolean") throw bad(packet, `'${name}' must be true or false`);
  return value;
}

/**
 * @param {JsonObject} packet
 * @param {string} name
 * @returns {JsonObject}
 */
export function object(packet, name) {
  const value = packet[name];
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw bad(packet, `'${name}' must be an object`);
  }
  return /** @type {JsonObject} */ (value);
}

/**
 * @param {JsonObject} packet
 * @param {string} name
 * @returns {string[]}
 */
export function list(packet, name) {
  const value = packet[name] ?? [];
  if (!Array.isArray(value) || !value.every((each) => typeof each === "string")) {
    throw bad(packet, `'${name}' must be an array of strings`);
  }
  return value;
}

/**
 * @param {JsonObject} packet
 * @param {string} name
 * @returns {number[]}
 */
export function counts(packet, name) {
  const value = packet[name];
  if (!Array.isArray(value) || !value.every((each) => Number.isSafeInteger(each) && each >= 0)) {
    throw bad(packet, `'${name}' must be an array of integers from 0`);
  }
  return value;
}

/**
 * @param {JsonObject} packet
 * @param {string} name
 * @returns {Record<string, string>}
 */
export function texts(packet, name) {
  const value = packet[name] ?? {};
  if (
    typeof value !== "object" ||
    Array.isArray(value) ||
    !Object.values(value).every((each) => typeof each === "string")
  ) {
    throw bad(packet, `'${name}' must be an object of strings`);
  }
  return /** @type {Record<string, string>} */ (value);
}
