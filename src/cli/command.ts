import type { Options, OptionSpecs } from './options.js';

/** Message of the `signal`'s reason where the process was told to end (SIGTERM) rather than interrupted. */
export const TERMINATED = 'terminated';

/** Where a command writes and when it must stop; tests and the real process give different ones. */
export interface Terminal {
  /** Writes to stdout; resolves when the reader can take more. */
  write(text: string): Promise<void>;
  /** One line to stderr. */
  note(line: string): void;
  /** A line on stderr that the next one replaces; nothing where stderr is no terminal. */
  progress(line: string): void;
  /** Fires on Ctrl-C and SIGTERM. */
  readonly signal: AbortSignal;
  /** Takes Ctrl-C before `signal` does, which fires only where this returns false; undefined: as before. */
  onInterrupt?(handler: (() => boolean) | undefined): void;
}

export interface Command {
  readonly summary: string;
  readonly usage: string;
  readonly options: OptionSpecs;
  /** Words one of which follows the command's name, before the options. */
  readonly subjects?: readonly string[];
  /** What the one word is called that may stand among the options: `options.text('MODEL')`. */
  readonly argument?: string;
  /** The exit code; errors are thrown. */
  run(options: Options, terminal: Terminal): Promise<number>;
}

/** Options that every command takes. */
export const commonOptions = {
  json: { help: 'print one JSON document instead of text' },
  verbose: { help: 'say what happens on stderr, and print the stack of an error' },
  help: { help: 'this text' },
} as const satisfies OptionSpecs;
