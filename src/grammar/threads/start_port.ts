import { startFile, startText } from './form_script.js';
import { type FormPort, lostThread, type PortEvents, type StartPort } from './form_thread.js';
import type { FormTold } from './serve_forms.js';

/** Threads where there are some. Where a page's policy forbids workers, or there is no file for one, forms are made ready where they are asked for. */
export function startPort(): StartPort {
  const ways =
    globalThis.process?.versions?.node === undefined
      ? [startFile, startText].flatMap((start) => (start ? [inPage(start)] : []))
      : [inNode];
  return async (events) => {
    // What didn't work once doesn't later.
    for (let way = ways[0]; way; way = ways[0]) {
      try {
        return await way(events);
      } catch {
        ways.shift();
      }
    }
    return startHere(events);
  };
}

const inNode: StartPort = async (events) => (await import('./node_form_port.js')).startNodePort(events);

const inPage =
  (start: () => Worker | Promise<Worker>): StartPort =>
  async (events) => {
    const worker = await start();
    let settled: ((error?: Error) => void) | undefined;
    const ready = new Promise<void>((resolve, reject) => {
      settled = (error) => (error ? reject(error) : resolve());
    });
    // It says something as soon as its script runs; one that isn't found, or that the page's policy forbids, has no message.
    worker.onmessage = ({ data }) => {
      if (data !== 'ready') return events.told(data as FormTold);
      settled?.();
      settled = undefined;
    };
    worker.onerror = (event) => {
      event.preventDefault?.();
      const why = (event as Partial<ErrorEvent>).message || 'its script could not be loaded';
      if (settled) settled(new Error(why));
      else events.ended(lostThread(why));
    };
    worker.onmessageerror = () => events.ended(lostThread('a message of it could not be read'));
    try {
      await ready;
    } catch (error) {
      worker.terminate();
      throw error;
    }
    return portOf(worker);
  };

const portOf = (worker: Worker): FormPort => ({
  post: (ask) => worker.postMessage(ask),
  hold: () => {},
  end: () => worker.terminate(),
});

export async function startHere(events: PortEvents): Promise<FormPort> {
  const { FormServer } = await import('./serve_forms.js');
  const server = new FormServer();
  return {
    post: (ask) => queueMicrotask(() => events.told(server.tell(ask))),
    hold: () => {},
    end: () => {},
  };
}
