/** What runs in the SharedWorker that has the model of all tabs (src/engine/faces/share). */
import { setBaseAddress } from '../base/platform.js';
import type { LoadedModel } from '../engine/faces/model.js';
import { type ForWorker, WorkerLine } from '../engine/faces/share/share_line.js';
import { load } from '../index.js';

const { gpu, locks } = navigator as Navigator;
const line = new WorkerLine(gpu, ({ where, base, options: { idle, ...options } }) => {
  if (base !== undefined) setBaseAddress(base);
  return {
    locks,
    idle,
    channel: (name) => new BroadcastChannel(name),
    open: async (told) => (await load(where, { ...options, ...told })) as LoadedModel,
  };
});

Object.assign(globalThis, {
  onconnect: ({ ports: [port] }: MessageEvent) => {
    // Where it may ask for no adapter or lock it doesn't stand there either.
    port!.onmessage = async ({ data }: MessageEvent<ForWorker>) =>
      port!.postMessage(await line.stand(data).catch(() => undefined));
  },
});
