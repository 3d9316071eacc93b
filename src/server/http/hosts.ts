import type { IncomingMessage } from 'node:http';
import { ApiError } from '../api_error.js';

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]'];

/** Whether an address to listen on is reached from this machine only. */
export const isLoopback = (host: string): boolean => /^(127\.|(::1|localhost)$)/.test(host);

/**
 * Host names that requests may ask for. A page whose own name was pointed at this machine (DNS rebinding) sends that name.
 * @param listensOn default names: a server for this machine has its names, one for others any
 */
export function hostCheck(names: readonly string[] | undefined, listensOn: string): (request: IncomingMessage) => void {
  const allowed = names ?? (isLoopback(listensOn) ? LOOPBACK : ['*']);
  if (allowed.includes('*')) return () => {};
  const known = new Set([...allowed, listensOn, ...LOOPBACK].map((name) => name.toLowerCase()));
  return ({ headers: { host = '' } }) => {
    const name = host.replace(/:\d*$/, '').toLowerCase();
    if (known.has(name)) return;
    throw new ApiError(
      403,
      `the host '${host.slice(0, 200)}' is not allowed here; start the server with --allowed-host ${name.slice(0, 200)}`,
      { code: 'host_not_allowed' },
    );
  };
}
