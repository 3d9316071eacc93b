import { messageOf, SplitkvError, usageError } from '../base/errors.js';
import { sum } from '../base/lists.js';
import { pause } from '../base/waits.js';
import type { FrontOptions, HttpFront, RequestRecord } from '../server/front.js';
import type { Replica } from '../server/replicas/replica.js';
import { isLoopback } from '../server/http/access.js';
import { isTerminated, type Terminal } from './command.js';
import { defined, type Options, type OptionSpecs, readGiven } from './options.js';

/** A few pictures or recordings, in base64. */
const MEDIA_BODY = 2 ** 24;
const DEFAULT_PORT = 8000;
const DEFAULT_GRACE_SECONDS = 30;
const DEFAULT_DRAIN_SECONDS = 5;

export const frontSpecs = {
  port: { value: 'P', help: `default ${DEFAULT_PORT}; 0 takes a free one` },
  listen: { value: 'ADDRESS', help: 'default 127.0.0.1: nobody but this machine; 0.0.0.0 or :: for everybody' },
  'api-key': {
    value: 'KEY',
    multiple: true,
    help: 'let in only clients that have it; may be given several times; also from SPLITKV_API_KEY',
  },
  'api-key-file': {
    value: 'FILE',
    help: "more keys, one on each line; 'KEY priority' for one whose requests may have a priority",
  },
  'allow-priority': { help: "everybody's requests may have a priority; default: those of keys that may" },
  'no-auth': { help: 'let in everybody, also from other machines' },
  'protect-metrics': { help: '/metrics needs a key, too' },
  'allowed-host': {
    value: 'NAME',
    multiple: true,
    help: "a host name that requests may ask for, or '*'; default: localhost where only this machine may connect, else any",
  },
  'allow-origin': { value: 'ORIGIN', multiple: true, help: "let pages of this origin ask, or '*'; default none" },
  'allow-local-apps': {
    help: 'let in programs of this machine and names of its network: containers, desktop programs, editors, extensions; default no',
  },
  'max-body': { value: 'SIZE', help: "a request's bytes; default 1MiB, with --images or --sound 16MiB" },
  'max-bodies': { value: 'SIZE', help: "all requests' bytes at once, one client's up to half; default 64MiB" },
  'max-connections': {
    value: 'N',
    help: 'connections at once; for more the longest idle ones are closed; default 1024',
  },
  'max-connections-per-address': {
    value: 'N',
    help: 'of these, those of one address; behind a proxy give it as many as --max-connections; default half of them',
  },
  'keep-alive': { value: 'SECONDS', help: 'that a connection waits for its next request; default 75' },
  'drain-delay': {
    value: 'SECONDS',
    help: `between SIGTERM, from when on /readyz says 503, and the last request taken; default ${DEFAULT_DRAIN_SECONDS}`,
  },
  grace: { value: 'SECONDS', help: `what requests under way get at the end; default ${DEFAULT_GRACE_SECONDS}` },
} satisfies OptionSpecs;

/**
 * Who may connect and ask, and what requests may take.
 * @throws SplitkvError `usage` for wrong values, and where others could come in without a key
 */
export async function frontOptions(options: Options, terminal: Terminal): Promise<FrontOptions> {
  const { keys, priorityKeys } = await apiKeys(options);
  const host = options.text('listen') ?? '127.0.0.1';
  const needsKeys = !isLoopback(host) && !options.has('no-auth');
  if (needsKeys && keys.length === 0) {
    throw usageError(
      `--listen ${host}: whoever reaches it could use this server; give --api-key (or --api-key-file, SPLITKV_API_KEY), or --no-auth`,
    );
  }
  if (options.has('no-auth') && keys.length > 0) throw usageError('--no-auth: leave out the keys, or this option');
  if (options.has('protect-metrics') && keys.length === 0) {
    throw usageError('--protect-metrics: there is no key; give --api-key');
  }
  const verbose = options.has('verbose');
  return {
    port: options.integer('port', 0, 65535) ?? DEFAULT_PORT,
    host,
    apiKeys: keys,
    priorityKeys: options.has('allow-priority') ? 'all' : priorityKeys,
    protectMetrics: options.has('protect-metrics'),
    origins: options.texts('allow-origin').map(checkedOrigin),
    localApps: options.has('allow-local-apps'),
    ...defined({
      allowedHosts: options.texts('allowed-host').length > 0 ? options.texts('allowed-host') : undefined,
      keepAliveMs: milliseconds(options, 'keep-alive'),
      maxBodyBytes:
        options.bytes('max-body') ??
        (['images', 'mmproj', 'sound'].some((name) => options.has(name)) ? MEDIA_BODY : undefined),
      maxBodiesBytes: options.bytes('max-bodies'),
      maxConnections: options.integer('max-connections', 1),
      maxConnectionsPerAddress: options.integer('max-connections-per-address', 1),
      onRequest: verbose ? (record: RequestRecord) => terminal.note(requestLine(record)) : undefined,
    }),
    onError: (error, { id, trace }) => {
      const message = (verbose && error instanceof Error && error.stack) || messageOf(error);
      const request = `request ${id}${trace === undefined ? '' : `, trace ${trace}`}`;
      terminal.note(`splitkv: ${error instanceof SplitkvError ? '' : 'internal error: '}${message} (${request})`);
    },
  };
}

/**
 * An end that clients notice little of. Whoever presses Ctrl-C waits for it; whoever sends SIGTERM may have a balancer that must notice
 * first.
 * @param parts what ends after requests that are under way
 */
export async function endGently(
  { drain, grace }: ReturnType<typeof endingOf>,
  terminal: Terminal,
  parts: readonly (HttpFront | Replica)[],
): Promise<void> {
  const isLate = isTerminated(terminal.signal) && drain > 0;
  if (isLate) terminal.note(`splitkv: no longer ready; requests are taken for another ${drain} s`);
  const drained = parts.map((part) => part.drain(isLate ? drain * 1000 : 0));
  if (isLate) await Promise.all([pause(drain * 1000), ...drained]);
  const live = sum(parts.map((part) => part.live));
  if (live > 0) terminal.note(`splitkv: ending; ${live} requests get ${grace} s to finish`);
  await Promise.all(parts.map((part) => part.close(grace * 1000)));
}

/** Seconds between SIGTERM and the last request taken, and those that requests under way get after it. @throws SplitkvError `usage` */
export const endingOf = (options: Options): { readonly drain: number; readonly grace: number } => ({
  drain: seconds(options, 'drain-delay') ?? DEFAULT_DRAIN_SECONDS,
  grace: seconds(options, 'grace') ?? DEFAULT_GRACE_SECONDS,
});

const seconds = (options: Options, name: string): number | undefined =>
  options.number(name, 'seconds of at least 0', (value) => value >= 0);

/** Of an option in seconds. @throws SplitkvError `usage` */
export function milliseconds(options: Options, name: string): number | undefined {
  const value = seconds(options, name);
  return value === undefined ? undefined : value * 1000;
}

/**
 * Keys that let clients in: of --api-key, --api-key-file and SPLITKV_API_KEY; and those of them whose requests may have a priority.
 * @throws SplitkvError `usage` for one that no client can send, and where a place that should have keys has none: an open door must be
 *   asked for
 */
async function apiKeys(options: Options): Promise<{ keys: string[]; priorityKeys: string[] }> {
  const priorityKeys: string[] = [];
  const keys: [place: string, key: string][] = options.texts('api-key').map((key) => ['--api-key', key]);
  const fromEnvironment = process.env['SPLITKV_API_KEY'];
  if (fromEnvironment !== undefined) {
    const key = fromEnvironment.trim();
    if (key === '') throw usageError('SPLITKV_API_KEY is empty; put a key there, or unset it');
    keys.push(['SPLITKV_API_KEY', key]);
  }
  const file = options.text('api-key-file');
  if (file !== undefined) {
    const lines = (await readGiven('api-key-file', file)).split('\n').map((line) => line.trim());
    const found = lines.filter((line) => line !== '');
    if (found.length === 0) throw usageError(`--api-key-file ${file}: there is no key in it`);
    for (const line of found) {
      const key = line.replace(/\s+priority$/, '');
      keys.push([`--api-key-file ${file}`, key]);
      if (key !== line) priorityKeys.push(key);
    }
  }
  for (const [place, key] of keys) {
    if (!/^[\x21-\x7e]+$/.test(key)) {
      const more = place.startsWith('--api-key-file') ? ", and behind it nothing, or a blank and 'priority'" : '';
      throw usageError(`${place}: expected letters, digits and signs without blanks, at least one${more}`);
    }
  }
  return { keys: keys.map(([, key]) => key), priorityKeys };
}

function checkedOrigin(text: string): string {
  // Those of programs have schemes of their own, of which URLs know no origin.
  if (text === '*' || text === 'null' || /^(?!https?:)[a-z][a-z\d+.-]*:\/\/[^/?#\s]*$/i.test(text)) return text;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url && url.origin === text) return text;
  throw usageError(
    `--allow-origin ${text}: expected an origin such as ${url && url.origin !== 'null' ? url.origin : 'https://example.com'}, or *`,
  );
}

const requestLine = ({ id, trace, method, path, status, outcome, seconds }: RequestRecord): string =>
  `${method} ${path.slice(0, 200)} ${status} ${outcome} ${seconds.toFixed(3)} s ${id}${trace === undefined ? '' : ` ${trace}`}`;
