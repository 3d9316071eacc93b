/**
 * Room: the command line: commands and their options, and the way to the host that runs a model. `commands` has a file
 * each, `hosts` are Node and Chrome. Read command.ts next, then commands/generate.ts.
 */

import { didYouMean, messageOf, SplitkvError, usageError } from '../base/errors.js';
import { VERSION } from '../base/version.js';
import { type Command, type Terminal, TERMINATED } from './command.js';
import { parseOptions } from './options.js';
import { type CommandEntry, commandHelp, mainHelp } from './terminal/help.js';
import { processTerminal } from './terminal/process_terminal.js';
import { plain, type Style } from './terminal/style.js';

interface Entry extends CommandEntry {
  /** Loaded when asked for: the help text must not wait for the engine. */
  readonly load: () => Promise<{ command: Command }>;
}

/** In the package; a checkout has another one in its place (bench/cli/main.ts). Thrown before any option is read. */
const inCheckout: Entry['load'] = async () => {
  throw usageError(
    'benches and simulations run in a checkout: git clone https://github.com/splitkv/splitkv && cd splitkv && npm run bench',
  );
};

const COMMANDS: Record<string, Entry> = {
  ...ofGroup('Use a model', {
    chat: ['hold a conversation', () => import('./commands/chat.js')],
    generate: ['continue a prompt, or answer it', () => import('./commands/generate.js')],
    serve: ['answer many requests at once, by the OpenAI API over HTTP', () => import('./commands/serve.js')],
    logits: ['next-token logits of token ids', () => import('./commands/logits.js')],
    'prefix make': ['a text, computed once, as a file for a site', () => import('./commands/prefix.js')],
  }),
  ...ofGroup('Models on this disk', {
    pull: ['download a model of the Hugging Face Hub', () => import('./commands/pull.js')],
    models: ['the models on this disk, and the catalog', () => import('./commands/models.js')],
  }),
  ...ofGroup('This machine', {
    doctor: ['whether this machine is ready, and what it would use', () => import('./commands/doctor.js')],
    adapters: ['the WebGPU adapters, and how fast they are', () => import('./commands/adapters.js')],
    plan: ['predict what every plan would do, and pick one', () => import('./commands/plan.js')],
    bench: ['measure speed and memory, in a checkout', inCheckout],
  }),
  ...ofGroup('More machines', {
    rank: ['a GPU of this machine joins a cluster', () => import('./commands/rank.js')],
    gateway: ['the OpenAI API in front of replicas (serve --replica)', () => import('./commands/gateway.js')],
    push: ['put a model into a cluster, for its ranks to load', () => import('./cluster/push.js')],
    cluster: ['start a NATS server, by which machines find each other', () => import('./commands/cluster.js')],
  }),
  ...ofGroup('Studies', {
    profile: ['measure what kv heads keep of compressed prompts', () => import('./commands/profile.js')],
    arrange: ['arrange kv heads over ranks by load', () => import('./commands/arrange.js')],
    'simulate adp': ['run the scheduler on a clock, in a checkout', inCheckout],
    'simulate cluster': ['run gateways and replicas on a clock, in a checkout', inCheckout],
  }),
};

function ofGroup(
  group: string,
  commands: Readonly<Record<string, readonly [summary: string, load: Entry['load']]>>,
): Record<string, Entry> {
  return Object.fromEntries(
    Object.entries(commands).map(([name, [summary, load]]) => [name, { group, summary, load }]),
  );
}

/** Loads the command of a name from elsewhere: a checkout has benches and simulations (bench/cli/main.ts). */
export function addCommand(name: string, load: Entry['load']): void {
  const known = COMMANDS[name];
  if (known) COMMANDS[name] = { ...known, load };
}

const EXIT_FAILURE = 1;
const EXIT_USAGE = 2;
const EXIT_INTERRUPTED = 130;
const SAME_INTERRUPT_MS = 100;

async function dispatch(argv: readonly string[], terminal: Terminal): Promise<number> {
  const [name, rest] = named(argv);
  const { style: { out: style } = { out: plain }, columns = 100 } = terminal;
  if (name === undefined || HELP.includes(name)) {
    const isWhole = rest.includes('--all');
    const [topic, further] = named(rest.filter((word) => !word.startsWith('-')));
    const text =
      topic === undefined
        ? mainHelp(COMMANDS, style, columns)
        : await helpOf(topic, further[0], style, columns, isWhole);
    await terminal.write(text);
    return name === undefined ? EXIT_USAGE : 0;
  }
  if (name === '--version' || name === '-v') {
    await terminal.write(`${VERSION}\n`);
    return 0;
  }
  // Whatever else is wrong with the line.
  const asked = rest.slice(0, rest.includes('--') ? rest.indexOf('--') : undefined);
  if (asked.includes('--help') || asked.includes('-h')) {
    await terminal.write(await helpOf(name, rest[0], style, columns, asked.includes('--all')));
    return 0;
  }
  const command = await commandOf(name, rest[0]);
  return command.run(parseOptions(name, command.options, rest, command.words), terminal);
}

/** The command's name, which has one word or two, and what follows it. */
function named(argv: readonly string[]): readonly [name: string | undefined, rest: readonly string[]] {
  const two = argv.slice(0, 2).join(' ');
  return Object.hasOwn(COMMANDS, two) && argv.length > 1 ? [two, argv.slice(2)] : [argv[0], argv.slice(1)];
}

/** Second words of the names that begin with this one. */
const subjectsOf = (name: string): string[] =>
  Object.keys(COMMANDS)
    .filter((each) => each.startsWith(`${name} `))
    .map((each) => each.slice(name.length + 1));

const HELP: readonly string[] = ['help', '--help', '-h'];

/** Of a name that needs a second word, the help of all that have it first. */
async function helpOf(
  name: string,
  next: string | undefined,
  style: Style,
  columns: number,
  isWhole: boolean,
): Promise<string> {
  const subjects = subjectsOf(name);
  const names = subjects.length > 0 ? subjects.map((subject) => `${name} ${subject}`) : [name];
  const texts = names.map(async (each) => commandHelp(each, await commandOf(each, next), style, columns, isWhole));
  return (await Promise.all(texts)).join('\n');
}

/** @throws SplitkvError `usage` with the nearest name */
async function commandOf(name: string, next: string | undefined): Promise<Command> {
  const known = Object.hasOwn(COMMANDS, name) && COMMANDS[name];
  if (known) return (await known.load()).command;
  const subjects = subjectsOf(name);
  if (subjects.length > 0) {
    const what =
      next === undefined || next.startsWith('-') ? `what to ${name} is missing` : `unknown subject '${next}'`;
    throw usageError(`${name}: ${what}.${didYouMean(next ?? '', subjects)} Use: ${name} ${subjects.join(' | ')}`);
  }
  const names = [...new Set(Object.keys(COMMANDS).map((each) => each.replace(/ .*/, '')))];
  throw usageError(`unknown command '${name}'.${didYouMean(name, names)} Commands: ${names.join(', ')}`);
}

/** Runs the command line on a terminal, errors told there; resolves to the exit code. */
export const runOn = (argv: readonly string[], terminal: Terminal): Promise<number> =>
  told(argv, terminal, () => dispatch(argv, terminal));

/** Runs the command line and ends the process with its exit code. */
export const run = (argv: readonly string[]): Promise<never> =>
  runProcess(argv, (terminal) => dispatch(argv, terminal));

/** Runs `body` with the process's terminal: Ctrl-C, closed pipes, errors told on stderr, and the exit code. */
export async function runProcess(
  argv: readonly string[],
  body: (terminal: Terminal) => Promise<number>,
): Promise<never> {
  const interrupt = new AbortController();
  let handler: (() => boolean) | undefined;
  let interruptedAt = -Infinity;
  process.on('SIGINT', () => {
    // A terminal tells this process and the one that filters its stderr (bin/quiet.js), which passes it on.
    const now = performance.now();
    const isSame = now - interruptedAt < SAME_INTERRUPT_MS;
    interruptedAt = now;
    if (isSame) return;
    if (!interrupt.signal.aborted && handler?.()) return;
    if (interrupt.signal.aborted) process.exit(EXIT_INTERRUPTED); // the second Ctrl-C doesn't wait
    interrupt.abort(new Error('interrupted'));
  });
  process.on('SIGTERM', () => interrupt.abort(new Error(TERMINATED)));
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    // The reader went away (`| head`): nothing is left to do.
    process.exit(error.code === 'EPIPE' ? 0 : EXIT_FAILURE);
  });
  const terminal: Terminal = {
    ...processTerminal(interrupt.signal),
    onInterrupt: (given) => (handler = given),
  };
  const code = await told(argv, terminal, () => body(terminal));
  await new Promise((resolve) => process.stdout.write('', resolve)); // flushed
  // Dawn and the browser may still hold handles; everything of ours is closed by now.
  process.exit(code);
}

async function told(argv: readonly string[], terminal: Terminal, body: () => Promise<number>): Promise<number> {
  try {
    return await body();
  } catch (error) {
    return report(error, argv.includes('--verbose'), terminal);
  }
}

function report(error: unknown, verbose: boolean, terminal: Terminal): number {
  const message = messageOf(error);
  const known = error instanceof SplitkvError;
  const { err: style } = terminal.style ?? { err: plain };
  if (known && error.code === 'aborted') {
    terminal.note(`${style('yellow', 'splitkv:')} interrupted`);
  } else {
    const prefix = known && error.code !== 'internal' ? '' : 'internal error: ';
    terminal.note(`${style('red', 'splitkv:')} ${prefix}${message.replace(/\s*\n\s*/g, '; ')}`);
  }
  if (verbose && error instanceof Error) {
    terminal.note(error.stack ?? '');
    if (error.cause instanceof Error) terminal.note(`cause: ${error.cause.stack ?? error.cause.message}`);
  }
  if (known && error.code === 'usage') return EXIT_USAGE;
  return known && error.code === 'aborted' ? EXIT_INTERRUPTED : EXIT_FAILURE;
}
