import { didYouMean, messageOf, usageError } from '../../base/errors.js';
import type { Terminal } from '../command.js';
import type { Messages } from './messages.js';

/** A conversation, as commands of a line change it. */
export interface Talk {
  ask(content: string, signal: AbortSignal): Promise<unknown>;
  /** Another answer to the last question. @throws SplitkvError `usage` where nothing was asked */
  again(signal: AbortSignal): Promise<void>;
  clear(): void;
  /** With a text: the system message from now on, in a new conversation. */
  system(text: string | undefined): string | undefined;
  save(path: string): Promise<void>;
  load(path: string): Promise<number>;
  /** With a name: another model, in a new conversation. Returns its name. */
  model(name: string | undefined): Promise<string>;
}

interface Line {
  readonly argument?: string;
  readonly help: string;
  run(argument: string, talk: Talk, signal: AbortSignal): Promise<string | undefined> | string | undefined;
}

const needed = (argument: string, what: string): string => {
  if (argument === '') throw usageError(`say which ${what}`);
  return argument;
};

/** What a line that begins with a slash does. */
const LINES: Readonly<Record<string, Line>> = {
  help: { help: 'these commands', run: () => helpOfLines() },
  clear: {
    help: 'begins a new conversation',
    run: (_, talk) => {
      talk.clear();
      return 'A new conversation.';
    },
  },
  system: {
    argument: '[TEXT]',
    help: 'the system message; with a text, a new conversation with it',
    run: (text, talk) => talk.system(text === '' ? undefined : text) ?? 'There is no system message.',
  },
  save: {
    argument: 'FILE',
    help: 'writes the conversation to a file',
    run: async (path, talk) => {
      await talk.save(needed(path, 'file'));
      return `The conversation is in ${path}.`;
    },
  },
  load: {
    argument: 'FILE',
    help: 'goes on with a conversation that was saved',
    run: async (path, talk) => `Turns that are back: ${await talk.load(needed(path, 'file'))}.`,
  },
  model: {
    argument: '[MODEL]',
    help: 'the model; with a name, a new conversation with that one',
    run: (name, talk) => talk.model(name === '' ? undefined : name),
  },
  regen: {
    help: 'another answer to the last question',
    run: (_, talk, signal) => talk.again(signal).then(() => undefined),
  },
  exit: { help: 'ends, as Ctrl-D does', run: () => undefined },
};

function helpOfLines(): string {
  const rows = Object.entries(LINES).map(
    ([name, { argument, help }]) => `  ${`/${name}${argument === undefined ? '' : ` ${argument}`}`.padEnd(16)}${help}`,
  );
  return [...rows, '  A line that ends with \\ goes on in the next one. Ctrl-C stops an answer.'].join('\n');
}

/** Lines and what they are answered, until there are no more: Ctrl-C stops an answer, and ends where none is being written. */
export async function converse(
  messages: Messages,
  talk: Talk,
  terminal: Terminal,
  interruptible: (interrupt: () => boolean) => void,
): Promise<number> {
  let answering: AbortController | undefined;
  interruptible(() => {
    if (!answering || answering.signal.aborted) {
      messages.close();
      return answering === undefined;
    }
    answering.abort();
    return true;
  });
  messages.prompt();
  for await (const text of messages) {
    const content = text.trim();
    if (content === '/exit') break;
    if (content !== '') {
      answering = new AbortController();
      const signal = AbortSignal.any([terminal.signal, answering.signal]);
      try {
        const line = lineOf(content);
        if (line) {
          const told = await line.run(content.replace(/^\S+\s*/, ''), talk, signal);
          if (told !== undefined) terminal.note(told);
        } else await talk.ask(content, signal);
      } catch (error) {
        if (terminal.signal.aborted) throw error;
        terminal.note(`splitkv: ${messageOf(error)}`);
      }
      answering = undefined;
      if (terminal.signal.aborted) break;
    }
    messages.prompt();
  }
  return 0;
}

/** A text that begins with a slash may be a path: only a lone word is taken for a command that there isn't. */
function lineOf(content: string): Line | undefined {
  const [, name] = /^\/([a-z]+)(?=\s|$)/.exec(content) ?? [];
  if (name === undefined) return undefined;
  if (Object.hasOwn(LINES, name)) return LINES[name];
  if (/\s/.test(content)) return undefined;
  throw usageError(`there is no /${name}.${didYouMean(name, Object.keys(LINES))} /help tells what there is.`);
}
