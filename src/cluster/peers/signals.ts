import { ioError, messageOf, throwIfAborted, usageError } from '../../base/errors.js';
import { isObject, parsed } from '../../base/json.js';
import { VERSION } from '../../base/version.js';
import { pause } from '../../base/waits.js';
import { pack, unpack } from './packed.js';

/** What one page says that the other needs to reach it: an offer or an answer of WebRTC, with all its addresses. */
export interface Description {
  readonly type: 'offer' | 'answer';
  /** Of the invitation: 32 hex digits. */
  readonly id: string;
  readonly sdp: string;
  readonly version: string;
}

/** Bytes of a description, packed and not: most have 1,000. */
const MOST_PACKED = 8192;
const MOST_TEXT = 32_768;
const ID = /^[\da-f]{32}$/;
const WHAT = { offer: 'an invitation', answer: 'an answer to an invitation' };

/** Whether it is an invitation's id alone: its text is asked for by a `Post`. */
export const isId = (text: string): boolean => ID.test(text);

export const writeDescription = (description: Description): Promise<string> =>
  pack(JSON.stringify(description), MOST_PACKED);

/** What `writeDescription` made, or an id, of an address too. */
export const bareText = (text: string): string => /(?:^|[#&?])peer=([\w-]*)/.exec(text)?.[1] ?? text.trim();

/** @throws SplitkvError `usage` */
export async function readDescription(text: string, type: Description['type']): Promise<Description> {
  const packed = bareText(text);
  const value = parsed(packed.length > 2 * MOST_PACKED ? '' : await unpack(packed, MOST_TEXT).catch(() => ''));
  if (!isObject(value) || (value['type'] !== 'offer' && value['type'] !== 'answer')) {
    throw usageError(`this is not ${WHAT[type]}, or not all of it: copy the whole text`);
  }
  const { id, sdp, version } = value;
  if (value['type'] !== type) throw usageError(`this is ${WHAT[value['type']]}, and ${WHAT[type]} is expected here`);
  if (version !== VERSION) {
    const other = typeof version === 'string' ? version.slice(0, 40) : 'of another kind';
    throw usageError(`the other page runs splitkv ${other}, and this is ${VERSION}: load the same version in both`);
  }
  const isSdp = typeof sdp === 'string' && sdp.match(/^m=/gm)?.length === 1 && sdp.includes('\nm=application ');
  if (typeof id !== 'string' || !isId(id) || !isSdp) throw usageError(`this is not ${WHAT[type]}`);
  return { type, id, sdp, version };
}

/** The DTLS certificate's fingerprint that a description announces. */
export const fingerprint = (sdp: string): string => /^a=fingerprint:(.+)$/m.exec(sdp)?.[1]?.trim().toUpperCase() ?? '';

/** What pages tell each other where nobody copies it; `taken` is the answer that was, where both are of one browser. */
type Kind = Description['type'] | 'taken';

/** How they do. */
export interface Post {
  /** @returns false where another one was before @throws SplitkvError `io` */
  put(kind: Kind, text: string): Promise<boolean>;
  /** Resolves with what the other page put. */
  get(kind: Kind, signal: AbortSignal): Promise<string>;
  close(): void;
}

/**
 * By BroadcastChannel, between pages of one origin in one browser: each says what it has when it is asked, so neither must be first.
 */
export function postHere(id: string): Post {
  const channel = new BroadcastChannel(`splitkv-peer-${id}`);
  const had = new Map<unknown, string>();
  const wanted = new Map<unknown, (text: string) => void>();
  channel.addEventListener('message', ({ data }: MessageEvent<unknown>) => {
    const { ask, kind, text } = isObject(data) ? data : {};
    const own = had.get(ask);
    if (own !== undefined) channel.postMessage({ kind: ask, text: own });
    if (typeof text === 'string') wanted.get(kind)?.(text);
  });
  return {
    put: (kind, text) => {
      had.set(kind, text);
      channel.postMessage({ kind, text });
      return Promise.resolve(true);
    },
    get: (kind) =>
      new Promise((resolve) => {
        wanted.set(kind, resolve);
        channel.postMessage({ ask: kind });
      }),
    close: () => channel.close(),
  };
}

const POLL_MS = 1000;

/** By any server that keeps texts: `PUT` and `GET` of `RELAY/ID-offer` and `RELAY/ID-answer`; 404 is nothing yet. */
export function postByRelay(relay: string, id: string): Post {
  const ask = async (kind: Kind, init: RequestInit = {}): Promise<Response> => {
    try {
      return await fetch(`${relay.replace(/\/$/, '')}/${id}-${kind}`, { ...init, cache: 'no-store' });
    } catch (error) {
      if (init.signal) throwIfAborted(init.signal, 'waiting for the other page');
      throw ioError(`the relay ${relay} doesn't answer (${messageOf(error)})`, error);
    }
  };
  return {
    put: async (kind, text) => {
      if ((await ask(kind)).ok) return false;
      const { ok, status } = await ask(kind, { method: 'PUT', body: text });
      if (!ok) throw ioError(`the relay ${relay} takes nothing: it answers ${status}`);
      return true;
    },
    get: async (kind, signal) => {
      for (;;) {
        const response = await ask(kind, { signal });
        if (response.ok) return response.text();
        if (response.status !== 404) throw ioError(`the relay ${relay} answers ${response.status}`);
        await pause(POLL_MS);
        throwIfAborted(signal, 'waiting for the other page');
      }
    },
    close: () => {},
  };
}
