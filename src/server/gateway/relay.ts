import { ApiError } from '../api_error.js';
import { IGNORED_HEADER } from '../http/access.js';
import { EventStream, type Exchange, outcomeOf } from '../http/exchange.js';
import { messageError } from '../messages/message_writer.js';
import { MAX_BYTES } from '../replicas/messages.js';
import { stopped } from '../requests/answer_request.js';
import { responseError } from '../responses/response_writer.js';
import { type AnswerHead, type AskedRequest, type GatewayCall, ReplicaGoneError } from './gateway_call.js';
import { breaks, DiffersError, endsWell, SseReader, StreamReplay } from './replay.js';
import type { Member, ReplicaSet } from './replica_set.js';
import type { RequestFacts } from './request_facts.js';

export interface RelayOptions {
  /** Time that a request which was begun waits for a replica to come. */
  readonly patienceMs: number;
  /** Hears what happened to requests that a replica left. */
  readonly onEvent: (event: RelayEvent) => unknown;
  /** Seconds after which a full cluster may have room. */
  readonly retryAfter: () => number;
}

/** moved: asked again elsewhere. resumed: a stream went on elsewhere. differed: it couldn't. */
export type RelayEvent = 'moved' | 'resumed' | 'differed';

/** Replicas that a request is given to, one after the other. */
const MAX_ASKED = 16;
/** Times that one of them may fail it. */
const MAX_FAILURES = 2;
/** Replicas that may say themselves that something is wrong: it may be the request. */
const MAX_ERRORS = 2;
/** Headers of an answer that clients are told. */
const TOLD = ['retry-after', IGNORED_HEADER, 'allow'];

/** What a replica says is wrong with it, or that it is full. */
interface Refusal {
  readonly head: AnswerHead;
  readonly text: string;
}

/**
 * One request, from replica to replica until one has answered it. What was sent of a stream is compared with what the next one says,
 * which goes on from there.
 */
export class Relay {
  readonly #replay = new StreamReplay();
  #stream: EventStream | undefined;
  /** How often instances failed it; those that were full are asked again after a while. */
  readonly #failures = new Map<string, number>();
  readonly #full = new Set<string>();
  /** Replicas that draw the same as the one that began. */
  #kind: string | undefined;
  #errors = 0;
  /** The stream is whole, whatever becomes of the replica. */
  #isWhole = false;
  #refusal: Refusal | undefined;

  constructor(
    private readonly replicas: ReplicaSet,
    private readonly exchange: Exchange,
    private readonly model: string,
    private readonly facts: RequestFacts,
    private readonly request: AskedRequest,
    private readonly options: RelayOptions,
  ) {}

  /** @throws ApiError what it is refused with, where nothing was sent */
  async run(): Promise<void> {
    try {
      await this.#untilAnswered();
    } catch (error) {
      if (!this.#stream || !(error instanceof ApiError)) throw error;
      this.#stream.send(brokenEvent(this.exchange.route, error, this.#replay.sent));
      this.#stream.end(outcomeOf(error));
    }
  }

  async #untilAnswered(): Promise<void> {
    for (let asked = 0; asked < MAX_ASKED; asked++) {
      const member = await this.#pick(asked > 0);
      if (asked > 0) this.#tell('moved');
      try {
        await this.#ask(member);
        return;
      } catch (error) {
        if (this.exchange.signal.aborted) throw stopped();
        if (error instanceof DiffersError) {
          this.#tell('differed');
          const message = `the replica that answered went away, and ${error.message}; ask again`;
          throw new ApiError(502, message, { code: 'replica_differs' });
        }
        if (!(error instanceof ReplicaGoneError)) throw error;
        if (this.#isWhole) return this.#stream!.end('completed');
        this.#addFailure(member);
      }
    }
    throw new ApiError(503, `${MAX_ASKED} replicas went away while they answered; try again`, {
      code: 'replicas_lost',
      retryAfter: 2,
    });
  }

  /** A replica may be reached again when the NATS server is, but not for ever. */
  #addFailure({ beat: { instance } }: Member): void {
    if (!this.#full.has(instance)) this.#failures.set(instance, (this.#failures.get(instance) ?? 0) + 1);
  }

  /** @throws ApiError 429, 503, or what the last one was refused with */
  async #pick(isBegun: boolean): Promise<Member> {
    const { replicas, facts, model } = this;
    const until = performance.now() + this.options.patienceMs;
    for (;;) {
      const keeper = facts.instance === undefined ? undefined : replicas.ofInstance(facts.instance);
      if (keeper && this.#accepts(keeper)) return keeper;
      // What it takes no more it is about to hand over: the news tell to whom.
      if (keeper?.beat.draining && performance.now() < until) {
        await replicas.news(until - performance.now(), this.exchange.signal);
        if (this.exchange.signal.aborted) throw stopped();
        continue;
      }
      const choice = replicas.choose(model, facts, (member) => this.#accepts(member));
      if (typeof choice === 'object') return replicas.member(choice.replica)!;
      // Nobody has been given it yet, or all are full: the client may come again.
      const isFull = choice === 'full' || this.#full.size > 0;
      if (!isBegun || (this.#refusal && !this.#stream)) throw this.#nobody(isFull);
      const left = until - performance.now();
      if (left <= 0) throw this.#nobody(isFull);
      await replicas.news(left, this.exchange.signal);
      if (this.exchange.signal.aborted) throw stopped();
      this.#full.clear();
    }
  }

  #accepts({ beat }: Member): boolean {
    if ((this.#failures.get(beat.instance) ?? 0) >= MAX_FAILURES || this.#full.has(beat.instance)) return false;
    return beat.model === this.model && (this.#kind ?? beat.fingerprint) === beat.fingerprint;
  }

  #nobody(isFull: boolean): ApiError {
    if (isFull) {
      const seconds = this.options.retryAfter();
      return new ApiError(429, `all replicas are full; try again in ${seconds} s`, {
        code: 'queue_full',
        retryAfter: seconds,
      });
    }
    const others = this.#kind === undefined ? '' : ' of the kind that began the answer';
    return new ApiError(503, `no replica${others} is ready for '${this.model.slice(0, 200)}'; try again`, {
      code: 'no_replica',
      retryAfter: 2,
    });
  }

  async #ask(member: Member): Promise<void> {
    const { exchange } = this;
    const call = this.replicas.ask(member, this.request, this.facts);
    const leave = (): void => call.fail('the client went away');
    exchange.signal.addEventListener('abort', leave, { once: true });
    if (exchange.signal.aborted) leave();
    try {
      const head = await call.head();
      const isStream = head.status === 200 && head.headers['content-type']?.startsWith('text/event-stream');
      if (isStream) await this.#passStream(call, head, member);
      else await this.#passWhole(call, head, member);
    } finally {
      exchange.signal.removeEventListener('abort', leave);
      call.fail('it is answered');
    }
  }

  async #passWhole(call: GatewayCall, head: AnswerHead, member: Member): Promise<void> {
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of call.chunks()) {
      bytes += chunk.length;
      if (bytes > MAX_BYTES) throw new ReplicaGoneError('its answer is too long');
      chunks.push(chunk);
    }
    const { status, headers } = head;
    const text = Buffer.concat(chunks).toString();
    if (this.#mayBeOthers(status, member)) {
      this.#refusal = { head, text };
      throw new ReplicaGoneError(`it says ${status}`);
    }
    if (this.#stream) {
      throw new ApiError(502, `the replica that answered went away, and another one says ${status}: ask again`, {
        code: 'replica_differs',
      });
    }
    this.#setHeaders(headers);
    this.exchange.send(status, headers['content-type'] ?? 'application/json', text, outcomeOf(head));
  }

  /** Whether another replica is to be asked instead. */
  #mayBeOthers(status: number, { beat }: Member): boolean {
    if (status !== 429 && status < 500) return false;
    if (status === 429) this.#full.add(beat.instance);
    else if (++this.#errors > MAX_ERRORS) return false;
    else this.#failures.set(beat.instance, MAX_FAILURES);
    // With nobody else, and nothing sent, this is the answer.
    return (
      this.#stream !== undefined ||
      typeof this.replicas.choose(this.model, this.facts, (member) => this.#accepts(member)) === 'object'
    );
  }

  async #passStream(call: GatewayCall, { headers }: AnswerHead, member: Member): Promise<void> {
    const { exchange } = this;
    const isFirst = this.#stream === undefined;
    if (isFirst) this.#setHeaders(headers);
    const stream = (this.#stream ??= new EventStream(exchange));
    this.#kind ??= member.beat.fingerprint;
    let hasResumed = isFirst;
    if (!isFirst) this.#replay.restart();
    const reader = new SseReader();
    for await (const chunk of call.chunks()) {
      for (const event of reader.push(chunk)) {
        if (breaks(event) && ++this.#errors <= MAX_ERRORS) {
          this.#failures.set(member.beat.instance, MAX_FAILURES);
          throw new ReplicaGoneError('its answer broke');
        }
        const text = this.#replay.take(event);
        if (text === undefined) continue;
        stream.sendText(text);
        if (breaks(event)) return stream.end('failed');
        this.#isWhole ||= endsWell(event);
        if (hasResumed || event.data === undefined) continue;
        hasResumed = true;
        this.#tell('resumed');
      }
      if (exchange.signal.aborted) throw stopped();
    }
    this.#replay.end();
    if (!this.#isWhole) throw new ReplicaGoneError('its answer was cut');
    stream.end('completed');
  }

  #setHeaders(headers: AnswerHead['headers']): void {
    for (const name of TOLD) {
      const value = headers[name];
      if (value !== undefined) this.exchange.response.setHeader(name, value);
    }
  }

  #tell(event: RelayEvent): void {
    this.options.onEvent(event);
  }
}

/** An error within a stream, as its API says it. */
function brokenEvent(route: string | undefined, error: ApiError, sequence: number): object {
  if (route === '/v1/messages') return messageError(error);
  return route === '/v1/responses' ? responseError(error, sequence) : error.body;
}
