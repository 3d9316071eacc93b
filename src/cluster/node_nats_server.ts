import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { ioError, tried, usageError } from '../base/errors.js';

export interface NatsServerOptions {
  /** The program; see find_nats_server.js. */
  readonly binary: string;
  /** Where it listens; default 127.0.0.1. */
  readonly host?: string;
  /** Default: a free one. */
  readonly port?: number;
  /** For pages, without TLS; default: a free one. */
  readonly webSocketPort?: number;
  /** Sites whose pages may come, `https://HOST`; default: with a token all, otherwise none, as any page that this machine opens could. */
  readonly origins?: readonly string[];
  /** Who comes must say it; needed where others than this machine can come. */
  readonly token?: string;
  /** Where JetStream keeps what it keeps; default: a folder that is removed when the server stops. */
  readonly folder?: string;
  /** More lines of configuration. */
  readonly lines?: readonly string[];
}

/** A nats-server with JetStream, as a child of this process. */
export interface NatsServer {
  /** `nats://HOST:PORT`. */
  readonly url: string;
  /** `ws://HOST:PORT`. */
  readonly webSocketUrl: string;
  /** Resolves with what it said last when it ends, however. */
  readonly ended: Promise<string>;
  /** SIGTERM unless told otherwise; resolves when it has ended and its own folder is gone. */
  stop(signal?: 'SIGTERM' | 'SIGKILL'): Promise<void>;
}

const START_MS = 20_000;
/** An origin that no page has: the name is reserved, so that nobody can own it. */
const NO_SITE = 'https://none.invalid';
const LOOPBACK = ['127.0.0.1', '::1', 'localhost'];

/** @throws SplitkvError `usage` for an open server, `io` when it doesn't come up */
export async function startNatsServer(options: NatsServerOptions): Promise<NatsServer> {
  const { host = '127.0.0.1', token, folder } = options;
  if (!LOOPBACK.includes(host) && token === undefined) {
    throw usageError(`nats-server at ${host}: others can reach it there; give it a token`);
  }
  const scratch = mkdtempSync(join(tmpdir(), 'splitkv-nats-'));
  if (folder !== undefined) mkdirSync(folder, { recursive: true });
  const file = join(scratch, 'nats.conf');
  writeFileSync(file, configuration(options, folder ?? join(scratch, 'jetstream'), scratch), { mode: 0o600 });
  const child = spawn(options.binary, ['-c', file], { stdio: ['ignore', 'ignore', 'pipe'] });
  // Whoever ends without stopping it leaves none behind.
  const orphaned = (): void => void child.kill('SIGKILL');
  process.once('exit', orphaned);
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-4000)));
  const ended = new Promise<string>((resolve) => {
    const end = (): void => {
      process.removeListener('exit', orphaned);
      rmSync(scratch, { recursive: true, force: true });
      resolve(said.trim());
    };
    child.once('error', (error) => {
      said += error.message;
      end();
    });
    child.once('close', end);
  });
  const stop = async (signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> => {
    child.kill(signal);
    await ended;
  };
  try {
    return { ...(await untilReady(child, () => said, scratch)), ended, stop };
  } catch (error) {
    await stop('SIGKILL');
    throw error;
  }
}

function configuration(
  { host = '127.0.0.1', port = -1, webSocketPort = -1, origins, token, lines = [] }: NatsServerOptions,
  store: string,
  scratch: string,
): string {
  // Not NATS's same_origin: a page whose own name was pointed at this machine (DNS rebinding) has that name as its Host, too.
  const sites = origins ?? (token === undefined ? [NO_SITE] : undefined);
  const pages = sites ? `allowed_origins: ${JSON.stringify(sites)}` : 'same_origin: false';
  return [
    `host: ${JSON.stringify(host)}`,
    `port: ${port}`,
    `ports_file_dir: ${JSON.stringify(scratch)}`,
    `jetstream { store_dir: ${JSON.stringify(store)} }`,
    `websocket { host: ${JSON.stringify(host)}, port: ${webSocketPort}, no_tls: true, ${pages} }`,
    ...(token === undefined ? [] : [`authorization { token: ${JSON.stringify(token)} }`]),
    ...lines,
    '',
  ].join('\n');
}

async function untilReady(
  child: ChildProcess,
  said: () => string,
  scratch: string,
): Promise<Pick<NatsServer, 'url' | 'webSocketUrl'>> {
  const until = performance.now() + START_MS;
  for (;;) {
    const ports = said().includes('Server is ready') ? readPorts(scratch) : undefined;
    if (ports) return ports;
    if (child.exitCode !== null || child.signalCode !== null || performance.now() > until) {
      const lines = said().trim().split('\n');
      const why = lines.find((line) => line.includes('[FTL]')) ?? lines.at(-1);
      throw ioError(`nats-server didn't come up: ${why || 'it said nothing'}`);
    }
    await pause(10);
  }
}

/** What the server wrote into a folder of its own, once it is whole. */
function readPorts(folder: string): Pick<NatsServer, 'url' | 'webSocketUrl'> | undefined {
  const file = readdirSync(folder).find((name) => name.endsWith('.ports'));
  const ports = tried(() => JSON.parse(readFileSync(join(folder, file ?? ''), 'utf8')) as Record<string, string[]>);
  const [url, webSocketUrl] = [ports?.['nats']?.[0], ports?.['websocket']?.[0]];
  return url !== undefined && webSocketUrl !== undefined ? { url, webSocketUrl } : undefined;
}
