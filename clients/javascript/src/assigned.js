/**
 * What the server gives a session besides values of topics: messages of queues, questions of others, and answers to its own.
 *
 * @module
 */

import { Consumers, QUEUES } from "./consumers.js";
import { Exchanges, QUESTIONS } from "./exchanges.js";

/** All of it, for one session. */
export class Assigned {
  /**
   * @param {import("./environment.js").Environment} environment
   * @param {import("./calls.js").Calls} calls - Ask something of the server.
   */
  constructor(environment, calls) {
    this.consumers = new Consumers(calls);
    this.exchanges = new Exchanges(environment, calls);
  }

  /**
   * Take in a packet.
   *
   * @param {import("./packets.js").MessageBody | import("./packets.js").QuestionBody
   *   | import("./packets.js").AnsweredBody} packet
   * @returns {boolean} Whether an acknowledgement is due before its time.
   */
  received(packet) {
    if (packet.type === "message") return this.consumers.received(packet);
    if (packet.type === "question") this.exchanges.given(packet);
    else this.exchanges.answered(packet);
    return false;
  }

  /**
   * The session goes on elsewhere: ask for what it holds and waits for.
   *
   * @param {import("./packets.js").Welcome} welcome
   * @param {boolean} restarted - Whether packet numbers have begun anew.
   */
  recovered({ supports }, restarted) {
    if (supports.includes(QUEUES)) this.consumers.recovered(restarted);
    if (supports.includes(QUESTIONS)) this.exchanges.recovered();
  }

  /**
   * @param {Error} ended - Why the session is over.
   * @param {Error | null} told - What iterations end with.
   */
  end(ended, told) {
    this.consumers.end(told);
    this.exchanges.end(ended);
  }
}
