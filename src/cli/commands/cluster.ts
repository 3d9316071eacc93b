import { abortedError, ioError, usageError } from '../../base/errors.js';
import { findNatsServer } from '../cluster/find_nats_server.js';
import { type Command, commonOptions, interrupted, say } from '../command.js';
import { defined, inGroup, type OptionSpecs, readGiven } from '../options.js';

export const command: Command = {
  summary:
    'Starts a NATS server (nats-server) on this machine, by which ranks and replicas of other machines find each other, with JetStream, ' +
    'and a WebSocket for pages. It ends with Ctrl-C. For development: docs/cluster.md has a configuration for services.',
  usage: 'cluster [options]',
  examples: ['splitkv cluster', 'splitkv cluster --listen 0.0.0.0 --token-file token.txt --store /var/lib/splitkv'],
  options: {
    ...inGroup('Server', {
      listen: { value: 'HOST', help: 'where it listens; default 127.0.0.1; others need --token-file' },
      port: { value: 'N', help: 'default 4222' },
      'websocket-port': { value: 'N', help: 'for pages, without TLS; default 4223' },
      origins: {
        value: 'URL,...',
        help: 'sites whose pages may come, https://example.com; default: with a token all, else none',
      },
      'token-file': { value: 'FILE', help: 'whoever comes must say what it holds' },
      store: { value: 'FOLDER', help: 'where it keeps what it keeps; default: a folder that goes with it' },
    } as const satisfies OptionSpecs),
    ...commonOptions,
  },
  async run(options, terminal) {
    const binary = findNatsServer();
    if (binary === undefined) throw ioError(missing());
    const { startNatsServer } = await import('../../cluster/node_nats_server.js');
    const path = options.text('token-file');
    const token = path === undefined ? undefined : (await readGiven('token-file', path)).trim();
    if (token === '') throw usageError(`--token-file ${path}: it is empty; write a long random text into it`);
    const origins = options.text('origins')?.split(',').map(readOrigin);
    if (terminal.signal.aborted) throw abortedError('starting the server', terminal.signal);
    const server = await startNatsServer({
      binary,
      port: options.integer('port', 1, 65535) ?? 4222,
      webSocketPort: options.integer('websocket-port', 1, 65535) ?? 4223,
      ...defined({ host: options.text('listen'), token, origins, folder: options.text('store') }),
    });
    const { url, webSocketUrl } = server;
    const pages = token === undefined && !origins ? ' (none may come: --token-file or --origins lets them)' : '';
    const text = `${url}\npages: ${webSocketUrl}${pages}\nA rank joins by: splitkv rank --cluster ${url} (Ctrl-C ends the server)\n`;
    await say(options, terminal, { url, websocket_url: webSocketUrl }, text);
    const said = await Promise.race([server.ended, interrupted(terminal.signal)]);
    await server.stop();
    if (said !== undefined) throw ioError(`nats-server ended: ${said.split('\n').at(-1)}`);
    return 0;
  },
};

/** @throws SplitkvError `usage` */
function readOrigin(text: string): string {
  const url = URL.canParse(text.trim()) ? new URL(text.trim()) : undefined;
  if (url && /^https?:$/.test(url.protocol) && url.pathname === '/') return url.origin;
  throw usageError(`--origins ${text}: expected a site, https://HOST or http://localhost:PORT`);
}

function missing(): string {
  const commands: Partial<Record<NodeJS.Platform, string>> = {
    linux: 'sudo apt-get install nats-server (Debian, Ubuntu)',
    darwin: 'brew install nats-server',
    win32: 'winget install NATSAuthors.NATSServer',
  };
  const how = commands[process.platform] ?? 'see https://nats.io/download';
  return `cluster: no nats-server is installed; ${how}, or set NATS_SERVER_PATH to one`;
}
