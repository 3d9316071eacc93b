import { createHash, randomInt } from 'node:crypto';
import { ApiError, badRequest, later } from '../api_error.js';
import { IGNORED_HEADER } from '../http/access.js';
import { EventStream, type Exchange, LINES_TYPE, outcomeOf } from '../http/exchange.js';
import { headersOf, MAX_BYTES } from '../replicas/messages.js';
import { stopped } from '../requests/answer_request.js';
import { responseError } from '../responses/response_writer.js';
import {
  type AnswerHead,
  type AskedRequest,
  type GatewayCall,
  type Member,
  ReplicaGoneError,
  type ReplicaSet,
} from './replica_set.js';
import { breaks, DiffersError, endsWell, EventReader, StreamReplay } from './replay.js';
import { isObject } from '../../base/json.js';
import { prefixHashes } from '../../cluster/routing/prefixes.js';
import { parseBody } from '../requests/read_call.js';
import { errorBody, type RouteName } from '../routes.js';

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
/** Headers of a request that replicas are told, and of an answer that clients are. */
const ASKED = ['content-type', 'traceparent'];
const TOLD = ['retry-after', IGNORED_HEADER, 'allow'];

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
  /** A replica said that it is full, or that something is wrong with it. */
  #isRefused = false;

  constructor(
    private readonly replicas: ReplicaSet,
    private readonly exchange: Exchange,
    private readonly model: string,
    private readonly facts: RequestFacts,
    private readonly options: RelayOptions,
  ) {}

  /** @throws ApiError what it is refused with, where nothing was sent */
  async run(): Promise<void> {
    try {
      await this.#untilAnswered();
    } catch (error) {
      if (!this.#stream || !(error instanceof ApiError)) throw error;
      this.#stream.send(brokenEvent(this.exchange, error, this.#replay.sent));
      this.#stream.end(outcomeOf(error));
    }
  }

  async #untilAnswered(): Promise<void> {
    for (let asked = 0; asked < MAX_ASKED; asked++) {
      const member = await this.#pick(asked > 0);
      if (asked > 0) this.options.onEvent('moved');
      try {
        await this.#ask(member);
        return;
      } catch (error) {
        if (this.exchange.signal.aborted) throw stopped();
        if (error instanceof DiffersError) {
          this.options.onEvent('differed');
          const message = `the replica that answered went away, and ${error.message}; ask again`;
          throw new ApiError(502, message, { code: 'replica_differs' });
        }
        if (!(error instanceof ReplicaGoneError)) throw error;
        if (this.#isWhole) return this.#stream!.end('completed');
        // It may be reached again when the NATS server is, but not for ever.
        const { instance } = member.beat;
        if (!this.#full.has(instance)) this.#failures.set(instance, (this.#failures.get(instance) ?? 0) + 1);
      }
    }
    throw later(503, 'replicas_lost', 2, `${MAX_ASKED} replicas went away while they answered; try again`);
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
      if (!isBegun || (this.#isRefused && !this.#stream)) throw this.#nobody(isFull);
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
      return later(429, 'queue_full', seconds, `all replicas are full; try again in ${seconds} s`);
    }
    const others = this.#kind === undefined ? '' : ' of the kind that began the answer';
    const why = `no replica${others} is ready for '${this.model.slice(0, 200)}'; try again`;
    return later(503, 'no_replica', 2, why);
  }

  async #ask(member: Member): Promise<void> {
    const { exchange } = this;
    const call = this.replicas.ask(member, askedOf(exchange, this.facts), this.facts);
    const leave = (): void => call.fail('the client went away');
    exchange.signal.addEventListener('abort', leave, { once: true });
    if (exchange.signal.aborted) leave();
    try {
      const head = await call.head();
      const isStream =
        head.status === 200 && /^(text\/event-stream|application\/x-ndjson)/.test(head.headers['content-type'] ?? '');
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
      this.#isRefused = true;
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
    const isLines = headers['content-type'] === LINES_TYPE;
    const stream = (this.#stream ??= new EventStream(exchange, isLines));
    this.#kind ??= member.beat.fingerprint;
    let hasResumed = isFirst;
    if (!isFirst) this.#replay.restart();
    const reader = new EventReader(isLines);
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
        this.options.onEvent('resumed');
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
}

/** An error within a stream, as its API says it. */
const brokenEvent = ({ route, request }: Exchange, error: ApiError, sequence: number): object =>
  route === '/v1/responses' ? responseError(error, sequence) : errorBody(request, error);

/** What a gateway must know of a request to send it somewhere, and to go on with it somewhere else. */
export interface RequestFacts {
  /** With a seed, where the answer is drawn and the request names none: another replica then draws the same. */
  readonly body: Uint8Array;
  readonly model: string | undefined;
  /** As it came. */
  readonly priority?: unknown;
  readonly session: string | undefined;
  /** Of the prompt, as far as it is a text. */
  readonly prefix: Uint32Array;
  /** The instance that keeps what the request goes on from. */
  readonly instance: string | undefined;
}

/** Fields that make the prompt, in its order; what grows comes last. */
const PROMPTS: Partial<Record<RouteName, readonly string[]>> = {
  '/v1/chat/completions': ['tools', 'messages'],
  '/v1/completions': ['prompt'],
  '/v1/responses': ['instructions', 'tools', 'input'],
  '/v1/messages': ['tools', 'system', 'messages'],
  '/api/chat': ['tools', 'messages'],
  '/api/generate': ['system', 'prompt', 'suffix'],
  '/completion': ['prompt'],
  '/infill': ['input_extra', 'input_prefix', 'prompt', 'input_suffix'],
};
/** Fields that name a conversation, in any API. */
const SESSIONS = ['session', 'prompt_cache_key'];
/** Seeds that every client's numbers can hold. */
const SEEDS = 2 ** 47;
const MAX_SESSION = 256;
const RESPONSE = /^resp_([0-9a-f]{8})_/;

const NOTHING = { model: undefined, session: undefined, prefix: new Uint32Array(), instance: undefined };

/** Of a request without a body. */
export const factsOfPath = (path: string): RequestFacts => ({
  ...NOTHING,
  body: new Uint8Array(),
  instance: instanceOf(/^\/v1\/responses\/([^/?]*)/.exec(path)?.[1]),
});

/**
 * Reads no more of a body than is needed: what is wrong with it a replica says.
 * @param session what the request's header names
 * @throws ApiError 400 for what is no JSON object, or an impossible session
 */
export function factsOf(route: RouteName, body: Uint8Array, session: string | undefined): RequestFacts {
  const fields = parseBody(body);
  if (!isObject(fields)) throw badRequest('the body is no JSON object; expected one');
  const model = fields['model'] ?? fields['name'];
  const named = SESSIONS.map((name) => fields[name]).find((value) => value != null);
  const prompts = PROMPTS[route];
  return {
    ...NOTHING,
    model: typeof model === 'string' ? model : undefined,
    session: checkedSession(session ?? named),
    instance: instanceOf(fields['previous_response_id']),
    ...(prompts && {
      priority: fields['priority'],
      prefix: prefixHashes(JSON.stringify([model ?? null, ...prompts.map((name) => fields[name] ?? null)])),
    }),
    body:
      prompts && [fields, fields['options']].every((of) => !isObject(of) || of['seed'] == null || of['seed'] === -1)
        ? withSeed(new TextDecoder().decode(body))
        : body,
  };
}

function askedOf({ request, client }: Exchange, { prefix, body }: RequestFacts): AskedRequest {
  const { method, url: path = '/', headers } = request;
  // Replicas count by client, and nobody else should know the key.
  const who = createHash('sha256').update(client).digest('hex').slice(0, 32);
  const told = { headers: headersOf(headers, ASKED), client: who, prefix, body };
  return { method: method as AskedRequest['method'], path, ...told };
}

const instanceOf = (id: unknown): string | undefined => (typeof id === 'string' ? RESPONSE.exec(id)?.[1] : undefined);

function checkedSession(session: unknown): string | undefined {
  if (session === undefined) return undefined;
  if (typeof session === 'string' && session !== '' && session.length <= MAX_SESSION) return session;
  throw badRequest(`session: expected a text of at most ${MAX_SESSION} characters`, 'session');
}

/** The text as it came, with one field more behind the others: of two with one name the last counts. */
function withSeed(text: string): Uint8Array {
  const end = text.lastIndexOf('}');
  const before = text.slice(0, end).trimEnd();
  const comma = before.endsWith('{') ? '' : ',';
  return new TextEncoder().encode(`${before}${comma}"seed":${randomInt(SEEDS)}${text.slice(end)}`);
}
