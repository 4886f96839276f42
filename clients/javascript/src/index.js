/**
 * The JavaScript client: a session at a gateway that outlives its connections.
 *
 * ```js
 * import { connect } from "./src/index.js";
 *
 * const session = await connect("ws://127.0.0.1:8100", { principal: "alice" });
 * for await (const update of await session.subscribe("prices/**")) {
 *   console.log(update.topic, update.value);
 * }
 * ```
 *
 * It reconnects by itself, and every recovery says what it preserved: `session.recoveries`, or the event `recovery`.
 *
 * @module
 */

/**
 * @typedef {import("./connect.js").ConnectOptions} ConnectOptions
 * @typedef {import("./follow.js").FollowedStep} FollowedStep
 * @typedef {import("./follow.js").FollowedUpdate} FollowedUpdate
 * @typedef {import("./follow.js").FollowOptions} FollowOptions
 * @typedef {import("./packets.js").JsonValue} JsonValue
 * @typedef {import("./sender.js").CallOptions} CallOptions
 * @typedef {import("./consumers.js").Ack} Ack
 * @typedef {import("./exchanges.js").AskedRequest} AskedRequest
 * @typedef {import("./exchanges.js").RequestHandler} RequestHandler
 * @typedef {import("./presence.js").Member} Member
 * @typedef {import("./presence.js").PresenceEvent} PresenceEvent
 * @typedef {import("./session.js").Receipt} Receipt
 * @typedef {import("./session.js").SendReceipt} SendReceipt
 * @typedef {import("./streams.js").StreamOptions} StreamOptions
 * @typedef {import("./streams.js").Update} Update
 * @typedef {import("./supervisor.js").Notice} Notice
 * @typedef {import("./supervisor.js").Recovery} Recovery
 * @typedef {import("./supervisor.js").SessionState} SessionState
 * @typedef {import("./values.js").CurrentValue} CurrentValue
 * @typedef {import("./values.js").ValuesPage} ValuesPage
 * @typedef {import("./wills.js").EndKind} EndKind
 * @typedef {import("./wills.js").Will} Will
 */

export { CloseCode, Outcome } from "./codes.js";
export {
  AnswerLost,
  ConnectFailed,
  DurableInUse,
  Forbidden,
  GatewayError,
  HandlerFailed,
  HandlerLost,
  HandlersBusy,
  InvalidPosition,
  InvalidProperties,
  InvalidSelector,
  InvalidTopic,
  InvalidValue,
  NoHandler,
  NoSuchDurable,
  NoSuchQueue,
  NoSuchTransaction,
  NotHeld,
  QueueFull,
  PositionGone,
  RequestFailed,
  RequestRefused,
  RequestTimedOut,
  SessionClosed,
  SessionEnded,
  SessionExpired,
  SessionFailed,
  SessionRefused,
  StreamOverflow,
  TooManySelections,
  Unauthenticated,
  ValueTooLarge,
} from "./errors.js";
export { connect } from "./connect.js";
export { Message, MessageConsumer } from "./consumers.js";
export { DurableStream } from "./durablestream.js";
export { Handling } from "./exchanges.js";
export { follow } from "./follow.js";
export { HistoryStream } from "./historystream.js";
export { Presence } from "./presence.js";
export { Session } from "./session.js";
export { UpdateStream } from "./streams.js";
export { Transaction } from "./transactions.js";
export { VERSION } from "./version.js";
