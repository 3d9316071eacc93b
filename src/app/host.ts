/**
 * Room: pages and the element. `chat` is `<splitkv-chat>`, `react` its component, `ranks` and `tools` the demo pages,
 * `rank` the page that joins a cluster, `shared` what they have in common, share_worker.ts the worker that tabs share. This file is the
 * page that `--host chrome` drives; read chat/element.ts next.
 */

/** The page that `splitkv ... --host chrome` runs models in: the library behind the calls of `HostPage`. */
import { codeOf, internalError } from '../base/errors.js';
import { toBase64 } from '../base/math.js';
import { defined } from '../base/options.js';
import type { KvFolder } from '../engine/contracts/kv_folder.js';
import { load, measureAdapters, type Model, planModel } from '../index.js';
import { type Hearing, type ModelCalls, modelCalls } from './shared/model_calls.js';
import { progressLines } from './shared/progress.js';
import { listBrowserAdapters } from './shared/adapter_list.js';
import type { HostCalls, HostEvent, HostPage } from './host_protocol.js';

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

export const onProgress = (line: string): void => void emit({ kind: 'progress', line });
export const onWarning = (message: string): void => void emit({ kind: 'warning', message });

/** A file on the command line's machine, which is written anew. */
const farFile = (name: string): KvFolder => ({
  name,
  list: async () => [],
  read: async () => undefined,
  write: (piece, bytes) => emit({ kind: 'kv', call: 'write', name: piece, base64: toBase64(bytes) }),
  remove: async () => {},
  flush: (subject) => emit({ kind: 'kv', call: 'flush', name: subject, base64: '' }),
});

/** The page's own calls. In a checkout benches are more of them. */
export const calls: Omit<HostCalls, keyof ModelCalls> = {
  async open({ signal }, url, options) {
    const tell = progressLines((line, part) => void emit({ kind: 'progress', line, ...(part && { part }) }));
    const told = { ...defined({ signal }), onProgress: tell, onWarning };
    const far = typeof options.kvDir === 'object' && { kvDir: farFile(options.kvDir.name) };
    model = await load(new URL(url, document.baseURI), { ...options, ...far, ...told });
    return model.info;
  },
  adapters: listBrowserAdapters,
  measure: ({ signal }, preferences) =>
    measureAdapters(
      preferences.map((powerPreference) => ({ powerPreference })),
      { ...defined({ signal }), onProgress },
    ),
  plan: ({ signal }, url, options) =>
    planModel(new URL(url, document.baseURI), { ...options, ...defined({ signal }), onProgress }),
  async close() {
    await model?.dispose();
    model = undefined;
  },
};

/** Each call ends by a signal of its own; what came of it is data. */
window.splitkvHost = {
  async ask(name, given) {
    running = new AbortController();
    const sent: Promise<void>[] = [];
    const hearing: Hearing = {
      signal: running.signal,
      onText: (piece) => void sent.push(emit({ kind: 'text', piece })),
      onRow: (position, row) => void sent.push(emit({ kind: 'row', position, base64: toBase64(row) })),
    };
    try {
      const all = { ...calls, ...(model && modelCalls(model)) } as Partial<HostCalls>;
      const call = all[name] as ((hearing: Hearing, ...given: unknown[]) => Promise<unknown>) | undefined;
      if (!call) throw internalError('no model is loaded in the page');
      const value = await call(hearing, ...given);
      await Promise.all(sent);
      return { ok: true, value };
    } catch (error) {
      const { message, stack } = error instanceof Error ? error : new Error(String(error));
      return { ok: false, code: codeOf(error), message, ...(stack !== undefined && { stack }) };
    }
  },
  abort: () => running.abort(new Error('interrupted')),
};

// The command line takes a page that stops saying this for dead.
setInterval(() => void emit({ kind: 'alive' }), 1000);
