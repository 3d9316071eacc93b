/**
 * Room: pages and the element. `chat` is `<splitkv-chat>`, `react` its component, `ranks` and `tools` the demo pages,
 * `rank` the page that joins a cluster, `shared` what they have in common. This file is the page that `--host chrome` drives; read chat/element.ts next.
 */

/** The page that `splitkv ... --host chrome` runs models in: the library behind the few calls of `HostPage`. */
import { load, type LoadProgress, measureAdapters, type Model, planModel, SplitkvError } from '../index.js';
import { answerAll, asPrompt, chatTurn } from './shared/chat_turn.js';
import { progressLine, progressPart } from './shared/progress.js';
import { listBrowserAdapters } from './shared/adapter_list.js';
import type { HostEvent, HostPage, Outcome } from './host_protocol.js';

declare global {
  interface Window {
    splitkvHost: HostPage;
    /** Exposed by the command line. */
    splitkvEvent: (event: HostEvent) => Promise<void>;
  }
}

let model: Model | undefined;
let running = new AbortController();

const emit = (event: HostEvent): Promise<void> => window.splitkvEvent(event);

/** A call of the command line's: what came of it, as data. The next call ends by a signal of its own. */
export async function attempt<T>(body: (signal: AbortSignal) => Promise<T>): Promise<Outcome<T>> {
  running = new AbortController();
  try {
    return { ok: true, value: await body(running.signal) };
  } catch (error) {
    const { message, stack } = error instanceof Error ? error : new Error(String(error));
    const code = error instanceof SplitkvError ? error.code : 'internal';
    return { ok: false, code, message, ...(stack !== undefined && { stack }) };
  }
}

export const onProgress = (line: string): void => void emit({ kind: 'progress', line });
export const onWarning = (message: string): void => void emit({ kind: 'warning', message });

function loaded(): Model {
  if (!model) throw new SplitkvError('internal', 'no model is loaded in the page');
  return model;
}

window.splitkvHost = {
  open: (url, options) =>
    attempt(async (signal) => {
      let last = '';
      const onProgress = (progress: LoadProgress): void => {
        const line = progressLine(progress);
        const part = progressPart(progress);
        if (line !== last) void emit({ kind: 'progress', line, ...(part && { part }) });
        last = line;
      };
      model = await load(new URL(url, document.baseURI), { ...options, signal, onProgress, onWarning });
      return model.info;
    }),
  generate: (prompt, feed, options) =>
    attempt(async (signal) => {
      const current = loaded();
      const generation = current.generate(asPrompt(current, prompt, feed), { ...options, signal });
      const sent: Promise<void>[] = [];
      for await (const piece of generation) sent.push(emit({ kind: 'text', piece }));
      await Promise.all(sent);
      return generation.result;
    }),
  generateMany: (prompts, feed, options) =>
    attempt((signal) => answerAll(loaded(), prompts, feed, { ...options, signal })),
  turn: (request) =>
    attempt(async (signal) => {
      const sent: Promise<void>[] = [];
      const done = await chatTurn(loaded(), request, signal, (piece) => void sent.push(emit({ kind: 'text', piece })));
      await Promise.all(sent);
      return done;
    }),
  logits: (tokens, all, promptLength) =>
    attempt(async (signal) => {
      const sent: Promise<void>[] = [];
      const onRow = (position: number, row: Float32Array): void =>
        void sent.push(emit({ kind: 'row', position, base64: toBase64(row) }));
      await loaded().logits(tokens, { all, signal, onRow, ...(promptLength !== undefined && { promptLength }) });
      await Promise.all(sent);
      return sent.length;
    }),
  kept: (prompt) => attempt((signal) => loaded().kept(prompt, { signal })),
  stats: () => attempt(() => Promise.resolve(loaded().stats())),
  adapters: () => attempt(listBrowserAdapters),
  measure: (preferences) =>
    attempt((signal) => {
      const requests = preferences.map((powerPreference) => ({ powerPreference }));
      return measureAdapters(requests, { signal, onProgress });
    }),
  plan: (url, options) =>
    attempt((signal) => planModel(new URL(url, document.baseURI), { ...options, signal, onProgress })),
  abort: () => running.abort(new Error('interrupted')),
  close: () =>
    attempt(async () => {
      await model?.dispose();
      model = undefined;
      return null;
    }),
};

function toBase64(row: Float32Array): string {
  const bytes = new Uint8Array(row.buffer, row.byteOffset, row.byteLength);
  let text = '';
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return btoa(text);
}

// The command line takes a page that stops saying this for dead.
setInterval(() => void emit({ kind: 'alive' }), 1000);
