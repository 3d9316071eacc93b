import { createHash, randomInt } from 'node:crypto';
import { isObject } from '../../base/json.js';
import { prefixHashes } from '../../cluster/routing/prefixes.js';
import { badRequest } from '../api_error.js';
import { parseBody } from '../requests/read_call.js';
import type { RouteName } from '../routes.js';

/** What a gateway must know of a request to send it somewhere, and to go on with it somewhere else. */
export interface RequestFacts {
  /** With a seed, where the answer is drawn and the request names none: another replica then draws the same. */
  readonly body: Uint8Array;
  readonly model: string | undefined;
  /** As it came. */
  readonly priority?: unknown;
  /** Answers that it asks for; 0 where nothing is generated. */
  readonly answers: number;
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
  answers: 0,
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
  const { model } = fields;
  const named = SESSIONS.map((name) => fields[name]).find((value) => value != null);
  const prompts = PROMPTS[route];
  return {
    ...NOTHING,
    model: typeof model === 'string' ? model : undefined,
    session: checkedSession(session ?? named),
    answers: prompts ? answersOf(fields) : route === '/v1/embeddings' ? 1 : 0,
    instance: instanceOf(fields['previous_response_id']),
    ...(prompts && {
      priority: fields['priority'],
      prefix: prefixHashes(JSON.stringify([model ?? null, ...prompts.map((name) => fields[name] ?? null)])),
    }),
    body:
      prompts && (fields['seed'] == null || fields['seed'] === -1) ? withSeed(new TextDecoder().decode(body)) : body,
  };
}

/** Who asks, for those who count: nobody else should know the key. */
export const hashOfClient = (client: string): string => createHash('sha256').update(client).digest('hex').slice(0, 32);

const instanceOf = (id: unknown): string | undefined => (typeof id === 'string' ? RESPONSE.exec(id)?.[1] : undefined);

function checkedSession(session: unknown): string | undefined {
  if (session === undefined) return undefined;
  if (typeof session === 'string' && session !== '' && session.length <= MAX_SESSION) return session;
  throw badRequest(`session: expected a text of at most ${MAX_SESSION} characters`, 'session');
}

function answersOf({ n, prompt }: Record<string, unknown>): number {
  const each = typeof n === 'number' && Number.isSafeInteger(n) && n > 0 ? n : 1;
  // A list of token ids is one prompt.
  const prompts = Array.isArray(prompt) && typeof prompt[0] !== 'number' ? Math.max(1, prompt.length) : 1;
  return each * prompts;
}

/** The text as it came, with one field more behind the others: of two with one name the last counts. */
function withSeed(text: string): Uint8Array {
  const end = text.lastIndexOf('}');
  const before = text.slice(0, end).trimEnd();
  const comma = before.endsWith('{') ? '' : ',';
  return new TextEncoder().encode(`${before}${comma}"seed":${randomInt(SEEDS)}${text.slice(end)}`);
}
