import type { Exchange, Outcome } from './exchange.js';

export interface EventStreamOptions {
  /** Bytes that may wait for a slow reader. */
  readonly maxBufferedBytes: number;
  /** Silence after which a comment is sent, so that neither end takes the other for dead. */
  readonly heartbeatMs: number;
}

/** An answer as server-sent events. What the client doesn't read waits in a bounded buffer; beyond it the request is ended. */
export class EventStream {
  readonly #heartbeat: NodeJS.Timeout;

  constructor(
    private readonly exchange: Exchange,
    private readonly options: EventStreamOptions,
  ) {
    const { response } = exchange;
    response.writeHead(200, {
      'Content-Type': 'text/event-stream; charset=utf-8',
      'Cache-Control': 'no-cache',
      'X-Accel-Buffering': 'no', // proxies pass events on as they come
    });
    response.flushHeaders();
    this.#heartbeat = setInterval(() => this.#write(': waiting\n\n'), options.heartbeatMs);
    response.once('close', () => clearInterval(this.#heartbeat));
  }

  /** @param name the event's, where the API has names for them */
  send(event: object, name?: string): void {
    this.#heartbeat.refresh();
    this.#write(`${name === undefined ? '' : `event: ${name}\n`}data: ${JSON.stringify(event)}\n\n`);
  }

  /** Events as they are to be sent, or comments. */
  sendText(text: string): void {
    this.#heartbeat.refresh();
    this.#write(text);
  }

  /** Ends the stream as clients expect it; an answer that was cut off ends without the mark of a whole one, where the API has one. */
  end(outcome: Outcome, mark?: string): void {
    clearInterval(this.#heartbeat);
    this.exchange.end(outcome, outcome === 'completed' && mark !== undefined ? `data: ${mark}\n\n` : undefined);
  }

  #write(text: string): void {
    const { response } = this.exchange;
    if (response.destroyed || response.writableEnded) return;
    response.write(text);
    if (response.writableLength <= this.options.maxBufferedBytes) return;
    this.exchange.stop('too_slow');
    response.destroy();
  }
}
