/**
 * Room: replicas of a cluster, and what they and gateways tell each other over NATS: the messages (here), the replica's
 * side (replica.ts), its heartbeats from a thread of their own (beats.ts), and what it leaves to others (handover.ts).
 * ../gateway has the other side.
 */

import { joinBytes } from '../../base/math.js';
import * as z from 'zod/mini';
import { formatError } from '../../base/errors.js';
import { isName } from '../../cluster/connect.js';
import { PrefixFilter } from '../../cluster/routing/prefixes.js';

/** Replicas and gateways of other protocols don't understand each other. */
export const PROTOCOL = 1;
/** Between two beats of a replica. Silence of BEATS_LOST of them is a loss. */
export const BEAT_MS = 500;
export const SILENCE_MS = 2000;
/** Between two signs of life of a request that has nothing else to say. */
export const ALIVE_MS = 1000;
/** Replicas whose responses one may have, by handovers from one to the next. */
export const MAX_KEEPS = 64;
/** Bytes of a message's head, and of a whole request's or answer's. */
const MAX_HEAD = 131_072;
export const MAX_BYTES = 2 ** 28;

const count = z.int().check(z.minimum(0));
const text = z.string().check(z.maxLength(512));
const name = z.string().check(z.refine(isName));
export const INSTANCE = /^[0-9a-f]{8}$/;
const instance = z.string().check(z.regex(INSTANCE));

const beatSchema = z.object({
  protocol: count,
  name,
  instance,
  model: text,
  version: text,
  fingerprint: text,
  adapter: text,
  /** 'ok', or why it takes no requests. */
  status: text,
  slots: count.check(z.minimum(1)),
  room: count.check(z.minimum(1)),
  running: count,
  waiting: count,
  draining: z.boolean(),
  left: z.boolean(),
  /** Instances that left, whose responses it has (handover.ts). */
  keeps: z.optional(z.array(instance).check(z.maxLength(MAX_KEEPS))),
  /** Milliseconds since the thread that computes last said how it is. */
  lag: z.number().check(z.minimum(0)),
  promptTokens: count,
  cachedTokens: count,
  generatedTokens: count,
});
export type Beat = z.infer<typeof beatSchema>;

const headers = z.record(z.string().check(z.maxLength(100)), z.string().check(z.maxLength(8192)));
const id = count;
const seq = count;
const toReplica = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('ask'),
    id,
    method: z.enum(['GET', 'HEAD', 'POST', 'DELETE']),
    path: z.string().check(z.regex(/^\/[\x21-\x7e]{0,2047}$/)),
    headers,
    /** Who asks, as the gateway knows it: a hash. */
    client: z.string().check(z.regex(/^[\w-]{1,64}$/)),
    /** Of the body, which follows in pieces. */
    bytes: count.check(z.maximum(MAX_BYTES)),
    /** Hashes of its prompt's beginnings, 4 bytes each, in base64. */
    prefix: z.string().check(z.maxLength(32_768)),
  }),
  z.object({ kind: z.literal('body'), id, seq }),
  z.object({ kind: z.literal('cancel'), id }),
]);
/** What a gateway tells a replica of a request. A body's piece is behind `ask` and each `body`. */
export type ToReplica = z.infer<typeof toReplica>;

const toGateway = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('head'), id, seq, status: z.int().check(z.minimum(200), z.maximum(599)), headers }),
  z.object({ kind: z.enum(['data', 'end', 'alive']), id, seq }),
  /** It doesn't answer, or goes on no more: somebody else may. */
  z.object({ kind: z.literal('gone'), id, seq, why: text }),
]);
/** What a replica tells a gateway of a request: in order, numbered from 0. A piece of the answer is behind `data`. */
export type ToGateway = z.infer<typeof toGateway>;

/** A message: its head, and bytes behind it. */
export interface Message<Head> {
  readonly head: Head;
  readonly bytes: Uint8Array;
}

const NEWLINE = 10;
const encoder = new TextEncoder();

/** A head as a line of JSON, and bytes behind it. */
export const encode = (head: object, bytes: Uint8Array = new Uint8Array()): Uint8Array =>
  joinBytes([encoder.encode(`${JSON.stringify(head)}\n`), bytes]);

/** Bytes of a body that fit a message behind a head. */
export const pieceBytes = (maxPayload: number): number => Math.min(262_144, Math.floor(maxPayload / 2));

type Schema<Head> = { safeParse(value: unknown): { success: true; data: Head } | { success: false } };
const decoder = new TextDecoder('utf-8', { fatal: true });

/** @throws SplitkvError `format` */
export function decode<Head>(what: string, schema: Schema<Head>, data: Uint8Array): Message<Head> {
  const end = data.subarray(0, MAX_HEAD).indexOf(NEWLINE);
  if (end < 0) throw formatError(`${what}: it has no head`);
  let value: unknown;
  try {
    value = JSON.parse(decoder.decode(data.subarray(0, end)));
  } catch (cause) {
    throw formatError(`${what}: its head is no JSON`, cause);
  }
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw formatError(`${what}: its head isn't one of protocol ${PROTOCOL}`);
  return { head: parsed.data, bytes: data.subarray(end + 1) };
}

/** As `decode`, as are those below. */
export function readBeat(data: Uint8Array): { readonly beat: Beat; readonly prefixes: PrefixFilter | undefined } {
  const { head, bytes } = decode("a replica's beat", beatSchema, data);
  return { beat: head, prefixes: bytes.length === 0 ? undefined : PrefixFilter.fromBytes(bytes) };
}

export const readToReplica = (data: Uint8Array): Message<ToReplica> => decode("a gateway's message", toReplica, data);
export const readToGateway = (data: Uint8Array): Message<ToGateway> => decode("a replica's message", toGateway, data);

/** Whether it is the NATS server's own word that nobody listens there. */
export const isNobody = (data: Uint8Array, status: number | undefined): boolean => data.length === 0 && status === 503;

/** Of headers, those of some names that have one value. */
export const headersOf = (all: Readonly<Record<string, unknown>>, names: readonly string[]): Record<string, string> =>
  Object.fromEntries(names.flatMap((name) => (typeof all[name] === 'string' ? [[name, all[name]]] : [])));
