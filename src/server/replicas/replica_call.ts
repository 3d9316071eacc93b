import { messageOf } from '../../base/errors.js';
import { type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http';
import type { Duplex } from 'node:stream';
import { ALIVE_MS, headersOf, pieceBytes, type ToGateway, type ToReplica } from './messages.js';

/** Where a call gets its answer, and where it goes. */
export interface CallPlace {
  /** A connection to the server that answers. */
  readonly connect: (client: string) => Duplex;
  readonly send: (head: ToGateway, bytes?: Uint8Array) => void;
  /** Resolves when the NATS server has all that was sent. */
  readonly flush: () => Promise<void>;
  readonly maxPayload: number;
  /** Once, however it ends. */
  readonly onEnd: () => unknown;
}

/** Headers of answers that clients are told. */
const TOLD = ['content-type', 'retry-after', 'x-splitkv-ignored', 'allow'];
/** Bytes that are sent without a word of the NATS server that it has them. */
const MOST_SENT = 2 ** 20;

/** A request of a gateway's: asked of the server in this process as if it had come by HTTP, and its answer sent back in pieces. */
export class ReplicaCall {
  #request: ClientRequest | undefined;
  #seq = 0;
  #nextPiece = 0;
  #missing: number;
  #sentAt = performance.now();
  #unflushed = 0;
  #ended = false;

  constructor(
    private readonly ask: Extract<ToReplica, { kind: 'ask' }>,
    private readonly place: CallPlace,
  ) {
    this.#missing = ask.bytes;
  }

  /** @param first bytes of the body, or all of it */
  start(first: Uint8Array): void {
    const { method, path, headers, bytes, client } = this.ask;
    const request = httpRequest({
      method,
      path,
      headers: { ...headers, ...(bytes > 0 && { 'content-length': bytes }) },
      createConnection: () => this.place.connect(client),
    });
    this.#request = request;
    request.on('response', (response) => {
      this.#answer(response).catch((error: unknown) => this.giveUp(messageOf(error)));
    });
    request.on('error', (error) => this.giveUp(error.message));
    this.#feed(first);
  }

  /** The next piece of the body. */
  body(seq: number, bytes: Uint8Array): void {
    if (this.#ended) return;
    if (seq !== this.#nextPiece++ || bytes.length === 0) return this.giveUp('a piece of the request is missing');
    this.#feed(bytes);
  }

  /** Nobody waits for it. */
  cancel(): void {
    if (this.#ended) return;
    this.#end();
  }

  /** Somebody else may answer it. */
  giveUp(why: string): void {
    if (this.#ended) return;
    this.#send({ kind: 'gone', id: this.ask.id, seq: this.#seq, why: why.slice(0, 200) });
    this.#end();
  }

  /** Says that it lives, where nothing else has. */
  alive(): void {
    if (this.#ended || performance.now() - this.#sentAt < ALIVE_MS / 2) return;
    this.#send({ kind: 'alive', id: this.ask.id, seq: this.#seq });
  }

  #feed(bytes: Uint8Array): void {
    this.#missing -= bytes.length;
    if (this.#missing < 0) return this.giveUp('the request is longer than it said');
    if (bytes.length > 0) this.#request?.write(bytes);
    if (this.#missing === 0) this.#request?.end();
  }

  async #answer(response: IncomingMessage): Promise<void> {
    const { id } = this.ask;
    const headers = headersOf(response.headers, TOLD);
    this.#send({ kind: 'head', id, seq: this.#seq, status: response.statusCode ?? 500, headers });
    const most = pieceBytes(this.place.maxPayload);
    for await (const chunk of response as AsyncIterable<Buffer>) {
      for (let at = 0; at < chunk.length; at += most) {
        if (this.#ended) return;
        const piece = chunk.subarray(at, at + most);
        this.#send({ kind: 'data', id, seq: this.#seq }, piece);
        this.#unflushed += piece.length;
        if (this.#unflushed < MOST_SENT) continue;
        await this.place.flush();
        this.#unflushed = 0;
      }
    }
    if (this.#ended) return;
    this.#send({ kind: 'end', id, seq: this.#seq });
    this.#end();
  }

  #send(head: ToGateway, bytes?: Uint8Array): void {
    this.#seq++;
    this.#sentAt = performance.now();
    this.place.send(head, bytes);
  }

  #end(): void {
    this.#ended = true;
    this.#request?.destroy();
    this.place.onEnd();
  }
}
