import type { ProgressPart } from '../app/shared/progress.js';
import { inGroup, type Options, type OptionSpecs } from './options.js';
import { fitLines } from './terminal/fit_lines.js';
import { LAST } from './terminal/help.js';
import type { Style } from './terminal/style.js';

/** Message of the `signal`'s reason where the process was told to end (SIGTERM) rather than interrupted. */
export const TERMINATED = 'terminated';

/** Where a command writes and when it must stop; tests and the real process give different ones. */
export interface Terminal {
  /** Writes to stdout; resolves when the reader can take more. */
  write(text: string): Promise<void>;
  /** One line to stderr. */
  note(line: string): void;
  /**
   * A line on stderr that the next one replaces, with a bar where `part` counts; where stderr is no terminal, a plain line every few
   * seconds of what is counted in bytes, otherwise nothing.
   */
  progress(line: string, part?: ProgressPart): void;
  /** Colours of stdout and stderr; default none. */
  readonly style?: { readonly out: Style; readonly err: Style };
  /** Width for help; default 100. */
  readonly columns?: number;
  /** Width of a terminal that shows what is told; undefined: it goes into a file or another program, whose lines stay whole. */
  readonly width?: number;
  /** Fires on Ctrl-C and SIGTERM. */
  readonly signal: AbortSignal;
  /** Takes Ctrl-C before `signal` does, which fires only where this returns false; undefined: as before. */
  onInterrupt?(handler: (() => boolean) | undefined): void;
}

export interface Command {
  readonly summary: string;
  readonly usage: string;
  readonly options: OptionSpecs;
  /** What words that stand among the options are, in order: they are read as these options, as far as those aren't given. */
  readonly words?: readonly string[];
  /** Command lines that work, for the help. */
  readonly examples?: readonly string[];
  /** The exit code; errors are thrown. */
  run(options: Options, terminal: Terminal): Promise<number>;
}

export const commonOptions = inGroup(LAST, {
  json: { help: 'print one JSON document instead of text' },
  verbose: { help: 'say what happens on stderr, and print the stack of an error' },
  help: { help: 'this text' },
} as const satisfies OptionSpecs);

/** What a command gives: with --json a document, otherwise text for people. */
export const say = (options: Options, terminal: Terminal, document: object, text: string): Promise<void> =>
  options.has('json') ? terminal.write(`${JSON.stringify(document)}\n`) : tell(terminal, text);

/** A text for people, in the terminal's width. */
export const tell = ({ write, width }: Terminal, text: string): Promise<void> => write(fitLines(text, width));

/** By SIGTERM rather than by Ctrl-C. */
export const isTerminated = ({ reason }: AbortSignal): boolean =>
  reason instanceof Error && reason.message === TERMINATED;

export function interrupted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}
