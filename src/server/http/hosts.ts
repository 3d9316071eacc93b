import type { IncomingMessage } from 'node:http';
import { ApiError, badRequest } from '../api_error.js';

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]'];

/** Whether an address to listen on is reached from this machine only. */
export const isLoopback = (host: string): boolean => /^(127\.|(::1|localhost)$)/.test(host);

/**
 * Host names that requests may ask for. A page whose own name was pointed at this machine (DNS rebinding) sends that name.
 * @param listensOn default names: a server for this machine has its names, one for others any
 * @returns throws ApiError 403 for another name, 400 for two of them
 */
export function hostCheck(names: readonly string[] | undefined, listensOn: string): (request: IncomingMessage) => void {
  const allowed = names ?? (isLoopback(listensOn) ? LOOPBACK : ['*']);
  const known = new Set([...allowed, listensOn, ...LOOPBACK].map((name) => name.toLowerCase()));
  return ({ headers: { host = '' }, headersDistinct }) => {
    // A proxy may have looked at the other one.
    if ((headersDistinct['host']?.length ?? 0) > 1) throw badRequest('the request has two Host headers; send one');
    if (known.has('*')) return;
    const name = host.replace(/:\d*$/, '').toLowerCase();
    if (known.has(name)) return;
    throw new ApiError(
      403,
      `the host '${host.slice(0, 200)}' is not allowed here; start the server with --allowed-host ${name.slice(0, 200)}`,
      { code: 'host_not_allowed' },
    );
  };
}
