import { pieceBytes, type ToGateway, type ToReplica } from '../replicas/messages.js';

/** The replica went away, or doesn't answer: another one may. */
export class ReplicaGoneError extends Error {
  override readonly name = 'ReplicaGoneError';
}

export interface AnswerHead {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
}

/** What is asked of a replica. */
export interface AskedRequest extends Omit<Extract<ToReplica, { kind: 'ask' }>, 'kind' | 'id' | 'bytes' | 'prefix'> {
  readonly prefix: Uint32Array;
  readonly body: Uint8Array;
}

export interface GatewayCallPlace {
  readonly send: (head: ToReplica, bytes?: Uint8Array) => void;
  readonly maxPayload: number;
  /** Once, however it ends. */
  readonly onEnd: () => void;
}

/** Hashes of a prompt's beginnings that travel with it. */
const MAX_HASHES = 4096;

/** A request that a replica has, and its answer: the head, then the bytes in order. */
export class GatewayCall {
  /** On the clock of performance.now(). */
  heardAt = performance.now();
  readonly #head: Promise<AnswerHead>;
  #settleHead!: { resolve(head: AnswerHead): void; reject(error: Error): void };
  readonly #chunks: Uint8Array[] = [];
  #seq = 0;
  #hasHead = false;
  #state: 'open' | 'complete' | ReplicaGoneError = 'open';
  #wake: (() => void) | undefined;

  constructor(
    private readonly id: number,
    private readonly place: GatewayCallPlace,
  ) {
    this.#head = new Promise((resolve, reject) => (this.#settleHead = { resolve, reject }));
    // Whoever waits for it hears of it.
    this.#head.catch(() => {});
  }

  start({ prefix, body, ...request }: AskedRequest): void {
    const { id, place } = this;
    const most = pieceBytes(place.maxPayload);
    const told = prefix.subarray(0, MAX_HASHES);
    const hashes = Buffer.alloc(told.length * 4);
    for (const [at, hash] of told.entries()) hashes.writeUInt32LE(hash, at * 4);
    const ask = { ...request, kind: 'ask', id, bytes: body.length } as const;
    place.send({ ...ask, prefix: hashes.toString('base64') }, body.subarray(0, most));
    for (let at = most, seq = 0; at < body.length; at += most, seq++) {
      place.send({ kind: 'body', id, seq }, body.subarray(at, at + most));
    }
  }

  /** @throws ReplicaGoneError */
  head(): Promise<AnswerHead> {
    return this.#head;
  }

  /** The answer's bytes. @throws ReplicaGoneError when they don't end */
  async *chunks(): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const chunk = this.#chunks.shift();
      if (chunk) {
        yield chunk;
        continue;
      }
      if (this.#state === 'complete') return;
      if (this.#state !== 'open') throw this.#state;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  /** A message of the replica's. */
  hear(head: ToGateway, bytes: Uint8Array): void {
    if (this.#state !== 'open') return;
    this.heardAt = performance.now();
    if (head.seq !== this.#seq++) return this.fail('a piece of its answer is missing');
    if (head.kind === 'gone') return this.#end(new ReplicaGoneError(head.why));
    if (head.kind === 'alive') return;
    if ((head.kind === 'head') === this.#hasHead) return this.fail("its answer's pieces are out of order");
    if (head.kind === 'head') {
      this.#hasHead = true;
      this.#settleHead.resolve({ status: head.status, headers: head.headers });
    } else if (head.kind === 'data') {
      this.#chunks.push(bytes);
      this.#wake?.();
    } else {
      this.#end('complete');
    }
  }

  /** It is given up; the replica, if it lives, is told. */
  fail(why: string): void {
    if (this.#state !== 'open') return;
    this.place.send({ kind: 'cancel', id: this.id });
    this.#end(new ReplicaGoneError(why));
  }

  #end(state: 'complete' | ReplicaGoneError): void {
    this.#state = state;
    if (state !== 'complete') this.#settleHead.reject(state);
    this.#wake?.();
    this.place.onEnd();
  }
}
