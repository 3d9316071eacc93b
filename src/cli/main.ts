/**
 * Room: the command line: commands and their options, and the way to the host that runs a model. `commands` has a file
 * each, `hosts` are Node and Chrome. Read command.ts next, then commands/generate.ts.
 */

import { didYouMean, SplitkvError, usageError } from '../base/errors.js';
import { type Command, type Terminal, TERMINATED } from './command.js';
import { optionHelp, parseOptions } from './options.js';

/** Loaded when asked for: the help text must not wait for the engine. */
const COMMANDS: Readonly<
  Record<string, { readonly summary: string; readonly load: () => Promise<{ command: Command }> }>
> = {
  adapters: { summary: 'the WebGPU adapters of this machine', load: () => import('./commands/adapters.js') },
  generate: { summary: 'continue a prompt, or answer it', load: () => import('./commands/generate.js') },
  chat: { summary: 'hold a conversation', load: () => import('./commands/chat.js') },
  logits: { summary: 'next-token logits of token ids', load: () => import('./commands/logits.js') },
  serve: {
    summary: 'answer many requests at once, by the OpenAI API over HTTP',
    load: () => import('./commands/serve.js'),
  },
  pull: { summary: 'download a model of the Hugging Face Hub', load: () => import('./commands/pull.js') },
  models: { summary: 'the models on this disk, and the catalog', load: () => import('./commands/models.js') },
  plan: { summary: 'predict what every plan would do, and pick one', load: () => import('./commands/plan.js') },
  bench: { summary: 'measure speed and memory, in a checkout', load: () => import('../../bench/cli/command.js') },
  profile: {
    summary: 'measure what kv heads keep of compressed prompts',
    load: () => import('./commands/profile.js'),
  },
  arrange: { summary: 'arrange kv heads over ranks by load', load: () => import('./commands/arrange.js') },
  simulate: { summary: 'run the scheduler on a clock', load: () => import('./commands/simulate.js') },
};

const EXIT_FAILURE = 1;
const EXIT_USAGE = 2;
const EXIT_INTERRUPTED = 130;

function mainHelp(): string {
  const width = Math.max(...Object.keys(COMMANDS).map((name) => name.length));
  const lines = Object.entries(COMMANDS).map(([name, { summary }]) => `  ${name.padEnd(width)}  ${summary}`);
  return `splitkv: small language models on WebGPU\n\nUsage: splitkv COMMAND [options]\n\n${lines.join('\n')}\n\nsplitkv COMMAND --help lists a command's options.\n`;
}

async function dispatch(argv: readonly string[], terminal: Terminal): Promise<number> {
  const [name, ...rest] = argv;
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    await terminal.write(mainHelp());
    return name === undefined ? EXIT_USAGE : 0;
  }
  if (name === '--version' || name === '-v') {
    const { version } = await import('./version.js');
    await terminal.write(`${await version()}\n`);
    return 0;
  }
  const names = Object.keys(COMMANDS);
  if (!Object.hasOwn(COMMANDS, name)) {
    throw usageError(`unknown command '${name}'.${didYouMean(name, names)} Commands: ${names.join(', ')}`);
  }
  const { command } = await COMMANDS[name]!.load();
  const options = parseOptions(name, command.options, withoutSubject(name, command, rest), command.argument);
  if (options.has('help')) {
    await terminal.write(`${command.summary}\n\nUsage: splitkv ${command.usage}\n\n${optionHelp(command.options)}\n`);
    return 0;
  }
  return command.run(options, terminal);
}

/** The arguments behind a command's subject, where it has one. @throws SplitkvError `usage` when that is missing or unknown. */
function withoutSubject(name: string, { subjects }: Command, rest: readonly string[]): readonly string[] {
  const [subject, ...options] = rest;
  if (!subjects || subject === '--help') return rest;
  if (subject !== undefined && subjects.includes(subject)) return options;
  const what =
    subject === undefined || subject.startsWith('-') ? `what to ${name} is missing` : `unknown subject '${subject}'`;
  throw usageError(`${name}: ${what}.${didYouMean(subject ?? '', subjects)} Use: ${name} ${subjects.join(' | ')}`);
}

function processTerminal(signal: AbortSignal): Terminal {
  const { stdout, stderr } = process;
  let progressShown = false;
  const clear = (): void => {
    if (progressShown) stderr.write('\r\x1b[K');
    progressShown = false;
  };
  return {
    signal,
    write: (text) => {
      clear();
      return stdout.write(text) ? Promise.resolve() : new Promise((resolve) => stdout.once('drain', resolve));
    },
    note: (line) => {
      clear();
      stderr.write(`${line}\n`);
    },
    progress: (line) => {
      if (!stderr.isTTY) return;
      stderr.write(`\r\x1b[K${line.slice(0, (stderr.columns ?? 80) - 1)}`);
      progressShown = true;
    },
  };
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
  process.on('SIGINT', () => {
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
  const message = error instanceof Error ? error.message : String(error);
  const known = error instanceof SplitkvError;
  if (known && error.code === 'aborted') {
    terminal.note('splitkv: interrupted');
  } else {
    const prefix = known && error.code !== 'internal' ? '' : 'internal error: ';
    terminal.note(`splitkv: ${prefix}${message.replace(/\s*\n\s*/g, '; ')}`);
  }
  if (verbose && error instanceof Error) {
    terminal.note(error.stack ?? '');
    if (error.cause instanceof Error) terminal.note(`cause: ${error.cause.stack ?? error.cause.message}`);
  }
  if (known && error.code === 'usage') return EXIT_USAGE;
  return known && error.code === 'aborted' ? EXIT_INTERRUPTED : EXIT_FAILURE;
}
