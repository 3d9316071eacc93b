import { VERSION } from '../../../base/version.js';
import { inTime } from '../../../base/waits.js';
import type { LoadOptions } from '../../contracts/api.js';
import { ShareHost } from './share_host.js';
import type { ShareWorld } from './share_protocol.js';

/** What a page asks of the worker: plain data. */
export interface ForWorker {
  readonly key: string;
  readonly where: string;
  readonly options: LoadOptions;
  /** What addresses are relative to. */
  readonly base: string | undefined;
}

/** A script that never says a word isn't waited for. */
const START_MS = 30_000;

/** Puts the worker of all tabs in the line for the model's lock; resolves once it stands there, or it is known that it can't. */
export async function putInLine(start: (name: string) => SharedWorker, asked: ForWorker): Promise<void> {
  try {
    const worker = start(asked.key);
    const said = new Promise((resolve) => {
      worker.onerror = resolve;
      worker.port.onmessage = resolve;
      worker.port.postMessage(asked);
    });
    await inTime(said, START_MS);
  } catch {
    // Of another origin, not allowed here, silent, or options that can't be sent: tabs are in line.
  }
}

/** The worker's side. */
export class WorkerLine {
  #standing: Promise<void> | undefined;

  /** @param open loads the model of the tab that asks */
  constructor(
    private readonly gpu: Pick<GPU, 'requestAdapter'> | undefined,
    private readonly world: (asked: ForWorker) => ShareWorld,
  ) {}

  /** Resolves once it stands in line, or can't. */
  stand(asked: ForWorker): Promise<void> {
    return (this.#standing ??= this.#stand(asked));
  }

  async #stand(asked: ForWorker): Promise<void> {
    const { key } = asked;
    if (!key.endsWith(` ${VERSION}`) || !(await this.gpu?.requestAdapter())) return;
    const world = this.world(asked);
    const turn = async (): Promise<void> => new ShareHost(key, world).run();
    void Promise.resolve(world.locks.request(key, turn))
      .catch(() => {}) // told to all, or refused to tabs as well
      .finally(() => (this.#standing = undefined));
    await world.locks.query(); // behind the request
  }
}
