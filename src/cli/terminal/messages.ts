import { tried } from '../../base/errors.js';
import { pause } from '../../base/waits.js';
import { createInterface } from 'node:readline';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

/** Lines that come closer together than anybody types were pasted: they are one message. */
const PASTE_MS = 40;
const KEPT = 500;

export interface Messages extends AsyncIterable<string> {
  /** Shows that a message is waited for. */
  prompt(): void;
  close(): void;
}

/**
 * Messages that somebody types: a line each, lines that were pasted together, or lines that end with a backslash and the next one.
 * Otherwise than at a terminal every line is a message.
 * @param history the file where earlier messages are kept, over sessions; undefined: nowhere
 */
export function readMessages(
  { stdin, stderr }: Pick<NodeJS.Process, 'stdin' | 'stderr'>,
  history: string | undefined,
  onInterrupt: () => void,
): Messages {
  const isTerminal = stdin.isTTY === true;
  // The newest first.
  const text = isTerminal && history !== undefined ? tried(() => readFileSync(history, 'utf8')) : undefined;
  const kept = text?.split('\n').filter(Boolean) ?? [];
  const lines = createInterface({
    input: stdin,
    ...(isTerminal && { output: stderr, history: kept, historySize: KEPT, removeHistoryDuplicates: true }),
  });
  lines.on('SIGINT', onInterrupt);
  if (isTerminal && history !== undefined) lines.on('history', (all) => writeLines(history, all));
  lines.setPrompt(isTerminal ? '> ' : '');
  return {
    prompt: () => void (isTerminal && lines.prompt()),
    close: () => lines.close(),
    [Symbol.asyncIterator]: () => (isTerminal ? joined(lines) : lines[Symbol.asyncIterator]()),
  };
}

/** Lines as messages: those that come at once, and those that go on, together. */
export async function* joined(lines: AsyncIterable<string>, pasteMs = PASTE_MS): AsyncGenerator<string> {
  const all = lines[Symbol.asyncIterator]();
  let next = all.next();
  for (;;) {
    const first = await next;
    if (first.done) return;
    let message = first.value;
    for (;;) {
      next = all.next();
      const goesOn = message.endsWith('\\');
      const come = goesOn ? await next : await Promise.race([next, pause(pasteMs)]);
      if (!come || come.done) break;
      message = `${goesOn ? message.slice(0, -1) : message}\n${come.value}`;
    }
    yield message;
  }
}

/** What was said to a model is for its own person. A history that can't be kept is no error. */
function writeLines(file: string, lines: readonly string[]): void {
  // Read-only homes have none.
  tried(() => {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, `${lines.join('\n')}\n`, { mode: 0o600 });
  });
}
