import { ioError, messageOf, throwIfAborted, usageError } from '../../base/errors.js';
import { isObject, parsed } from '../../base/json.js';
import { toBase64 } from '../../base/math.js';
import { VERSION } from '../../base/version.js';
import { pause } from '../../base/waits.js';

/** What one page says that the other needs to reach it: an offer or an answer of WebRTC, with all its addresses. */
export interface Description {
  readonly type: 'offer' | 'answer';
  /** Of the invitation: 32 hex digits. */
  readonly id: string;
  readonly sdp: string;
}

/** Letters of a description: most have 700. What they unpack to is at most a thousand times as long. */
const MOST_LETTERS = 8192;
const WHAT = { offer: 'an invitation', answer: 'an answer to an invitation' };

export const isId = (text: unknown): boolean => typeof text === 'string' && /^[\da-f]{32}$/.test(text);

/** What `writeDescription` made, or an id, of an address too. */
export const bareText = (text: string): string => /(?:^|[#&?])peer=([\w-]*)/.exec(text)?.[1] ?? text.trim();

const through = (bytes: Uint8Array<ArrayBuffer>, stream: CompressionStream | DecompressionStream): Response =>
  new Response(new Blob([bytes]).stream().pipeThrough(stream));

export async function writeDescription(description: Description): Promise<string> {
  const bytes = new TextEncoder().encode(JSON.stringify({ ...description, version: VERSION }));
  const packed = new Uint8Array(await through(bytes, new CompressionStream('deflate-raw')).arrayBuffer());
  return toBase64(packed).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

async function unpack(text: string): Promise<unknown> {
  const letters = atob(text.slice(0, MOST_LETTERS).replaceAll('-', '+').replaceAll('_', '/'));
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  return parsed(await through(bytes, new DecompressionStream('deflate-raw')).text());
}

/** @throws SplitkvError `usage` */
export async function readDescription(text: string, type: Description['type']): Promise<Description> {
  const value = await unpack(bareText(text)).catch(() => undefined);
  const { type: given, id, sdp, version } = isObject(value) ? value : {};
  if (given !== 'offer' && given !== 'answer') {
    throw usageError(`this is not ${WHAT[type]}, or not all of it: copy the whole text`);
  }
  if (given !== type) throw usageError(`this is ${WHAT[given]}, and ${WHAT[type]} is expected here`);
  if (version !== VERSION) {
    const other = String(version).slice(0, 40);
    throw usageError(`the other page runs splitkv ${other}, and this is ${VERSION}: load the same version in both`);
  }
  const isSdp = typeof sdp === 'string' && sdp.match(/^m=/gm)?.length === 1 && sdp.includes('\nm=application ');
  if (!isId(id) || !isSdp) throw usageError(`this is not ${WHAT[type]} of splitkv`);
  return { type, id: id as string, sdp };
}

/** What pages tell each other where nobody copies it; `taken` is the answer that was, where both are of one browser. */
type Kind = Description['type'] | 'taken';

/** How they do. */
export interface Post {
  /** @returns false where another one was before @throws SplitkvError `io` */
  put(kind: Kind, text: string): Promise<boolean>;
  /** Resolves with what the other page put. */
  get(kind: Kind, signal: AbortSignal): Promise<string>;
}

/** Between pages of one origin in one browser. Each says what it has when it is asked, so neither must be first. */
export function postHere(id: string, signal: AbortSignal): Post {
  const channel = new BroadcastChannel(`splitkv-peer-${id}`);
  signal.addEventListener('abort', () => channel.close(), { once: true });
  const had = new Map<unknown, string>();
  const wanted = new Map<unknown, (text: string) => void>();
  channel.onmessage = ({ data }: MessageEvent<Record<string, unknown>>) => {
    const own = had.get(data['ask']);
    if (own !== undefined) channel.postMessage({ kind: data['ask'], text: own });
    if (typeof data['text'] === 'string') wanted.get(data['kind'])?.(data['text']);
  };
  return {
    put: async (kind, text) => {
      had.set(kind, text);
      channel.postMessage({ kind, text });
      return true;
    },
    get: (kind) =>
      new Promise((resolve) => {
        wanted.set(kind, resolve);
        channel.postMessage({ ask: kind });
      }),
  };
}

/** By any server that keeps texts: `PUT` and `GET` of `RELAY/ID-offer` and `RELAY/ID-answer`; 404 is nothing yet. */
export function postByRelay(relay: string, id: string): Post {
  const ask = async (kind: Kind, init: RequestInit = {}): Promise<Response | undefined> => {
    const where = `${relay.replace(/\/$/, '')}/${id}-${kind}`;
    const response = await fetch(where, { ...init, cache: 'no-store' }).catch((error: unknown) => {
      throw ioError(`the relay ${relay} doesn't answer (${messageOf(error)})`, error);
    });
    if (response.ok) return response;
    if (response.status !== 404 || init.method) throw ioError(`the relay ${relay} answers ${response.status}`);
    return undefined;
  };
  return {
    put: async (kind, body) => !(await ask(kind)) && (await ask(kind, { method: 'PUT', body })) !== undefined,
    get: async (kind, signal) => {
      for (;;) {
        throwIfAborted(signal, 'waiting for the other page');
        const response = await ask(kind, { signal });
        if (response) return response.text();
        await pause(1000);
      }
    },
  };
}
