import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { show } from '../../base/json.js';
import { ApiError, badRequest } from '../api_error.js';
import { addressOf } from './connections.js';

/** Names the fields of a request that nobody here knows. */
export const IGNORED_HEADER = 'x-splitkv-ignored';

/** As OpenAI's clients send it, or as Anthropic's do. */
const keyIn = ({ authorization, 'x-api-key': own }: IncomingMessage['headers']): string | undefined =>
  /^Bearer +(\S+) *$/i.exec(authorization ?? '')?.[1] ?? (typeof own === 'string' && own !== '' ? own : undefined);

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

/** Takes as long for a wrong key as for a right one. */
function isOneOf(keys: readonly Buffer[], given: string): boolean {
  const hash = digest(given);
  return keys.filter((key) => timingSafeEqual(key, hash)).length > 0;
}

/** Who may ask: clients with a key, and pages of origins that were named. */
export class Access {
  readonly #keys: readonly Buffer[];
  readonly #priority: readonly Buffer[] | 'all';

  /**
   * @param keys any of them will do; none: everybody may ask
   * @param origins pages of these may ask, of '*' all; others are refused, so that no page that someone happens to visit can use a
   *   server on their machine
   * @param priority whose requests may have one: those with one of these keys, or all
   * @param localApps programs of this machine may ask, too, which have origins of their own
   */
  constructor(
    keys: readonly string[],
    private readonly origins: readonly string[],
    priority: readonly string[] | 'all' = [],
    private readonly localApps = false,
  ) {
    this.#keys = keys.map(digest);
    this.#priority = priority === 'all' ? 'all' : priority.map(digest);
  }

  /** @throws ApiError 401 */
  checkKey({ headers }: IncomingMessage): void {
    if (this.#keys.length === 0) return;
    const given = keyIn(headers);
    const asks = { 'WWW-Authenticate': 'Bearer' };
    if (given === undefined) {
      throw new ApiError(401, "an API key is needed: send 'Authorization: Bearer KEY'", {
        code: 'missing_api_key',
        headers: asks,
      });
    }
    if (!isOneOf(this.#keys, given)) {
      throw new ApiError(401, 'the API key is wrong', { code: 'invalid_api_key', headers: asks });
    }
  }

  /** Who asks, as far as that can be told: by key where keys are needed, otherwise by address. Clients behind one proxy are one. */
  clientOf({ headers, socket }: IncomingMessage): string {
    const key = this.#keys.length > 0 ? keyIn(headers) : undefined;
    return key ?? addressOf(socket.remoteAddress ?? '');
  }

  /** @throws ApiError 403 for a priority that this client may not ask for */
  checkPriority({ headers }: IncomingMessage, priority: unknown): void {
    if (priority === undefined || priority === null || priority === 0 || this.#priority === 'all') return;
    const given = keyIn(headers);
    if (given !== undefined && isOneOf(this.#priority, given)) return;
    const why = this.#keys.length > 0 ? "its key isn't allowed to" : 'clients have no keys';
    throw new ApiError(
      403,
      `priority ${show(priority)}: this client may not ask for one, as ${why}; leave it out, or let it: ` +
        "'KEY priority' in the server's --api-key-file, or --allow-priority for everybody",
      { code: 'priority_not_allowed', param: 'priority' },
    );
  }

  /** Lets a page's browser show it the answer. @throws ApiError 403 */
  checkOrigin({ headers: { origin } }: IncomingMessage, response: ServerResponse): void {
    if (origin === undefined) return;
    const all = this.origins.includes('*');
    const isLocal = LOCAL_ORIGINS.test(origin);
    if (!all && !this.origins.includes(origin) && !(this.localApps && isLocal)) {
      const how = `--allow-origin ${origin.slice(0, 200)}${isLocal ? ' or --allow-local-apps' : ''}`;
      throw new ApiError(403, `pages of ${origin.slice(0, 200)} may not use this server; start it with ${how}`, {
        code: 'origin_not_allowed',
      });
    }
    response.setHeader('Access-Control-Allow-Origin', all ? '*' : origin);
    response.setHeader(
      'Access-Control-Expose-Headers',
      `x-request-id, request-id, retry-after, traceparent, ${IGNORED_HEADER}`,
    );
    if (!all) response.setHeader('Vary', 'Origin');
  }

  /** A browser's question before a request; true when this was one. */
  isPreflight({ method, headers }: IncomingMessage, response: ServerResponse): boolean {
    const wanted = headers['access-control-request-method'];
    if (method !== 'OPTIONS' || headers.origin === undefined || wanted === undefined) return false;
    response.setHeader('Access-Control-Allow-Methods', 'GET, POST, DELETE');
    response.setHeader('Access-Control-Allow-Headers', headers['access-control-request-headers'] ?? '*');
    response.setHeader('Access-Control-Max-Age', '600');
    // Of pages that aren't of this machine.
    if (headers['access-control-request-private-network'] === 'true') {
      response.setHeader('Access-Control-Allow-Private-Network', 'true');
    }
    return true;
  }
}

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]'];
/** Of desktop programs, extensions and pages of this machine; none of them is a page of the network, as `null` may be. */
const LOCAL_ORIGINS =
  /^((app|capacitor|ionic|tauri|file|vscode-webview|vscode-file|chrome-extension|moz-extension):\/\/.*|https?:\/\/(localhost|127\.0\.0\.1|\[::1\]|[\w-]+\.localhost)(:\d+)?)$/i;
/** Containers' names of this machine, addresses, and names that no DNS of the internet gives: a page can't have one pointed here. */
const LOCAL_HOSTS =
  /^(host\.(docker|containers|lima|orb)\.internal|gateway\.docker\.internal|\d+\.\d+\.\d+\.\d+|\[[\da-f:.]+\]|[\w-]+(\.(local|lan|home\.arpa|localhost))?)$/i;

/** Whether an address to listen on is reached from this machine only. */
export const isLoopback = (host: string): boolean => /^(127\.|(::1|localhost)$)/.test(host);

/**
 * Host names that requests may ask for. A page whose own name was pointed at this machine (DNS rebinding) sends that name.
 * @param listensOn default names: a server for this machine has its names, one for others any
 * @param localApps addresses and names of the local network, too
 * @returns throws ApiError 403 for another name, 400 for two of them
 */
export function hostCheck(
  names: readonly string[] | undefined,
  listensOn: string,
  localApps = false,
): (request: IncomingMessage) => void {
  const allowed = names ?? (isLoopback(listensOn) ? LOOPBACK : ['*']);
  const known = new Set([...allowed, listensOn, ...LOOPBACK].map((name) => name.toLowerCase()));
  return ({ headers: { host = '' }, headersDistinct }) => {
    // A proxy may have looked at the other one.
    if ((headersDistinct['host']?.length ?? 0) > 1) throw badRequest('the request has two Host headers; send one');
    if (known.has('*')) return;
    const name = host.replace(/:\d*$/, '').toLowerCase();
    const isLocal = LOCAL_HOSTS.test(name);
    if (known.has(name) || (localApps && isLocal)) return;
    const how = `--allowed-host ${name.slice(0, 200)}${isLocal ? ' or --allow-local-apps' : ''}`;
    const why =
      name === ''
        ? "the request has no Host header; send one, or start the server with --allowed-host '*'"
        : `the host '${host.slice(0, 200)}' is not allowed here; start the server with ${how}`;
    throw new ApiError(403, why, { code: 'host_not_allowed' });
  };
}
