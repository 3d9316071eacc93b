import { messageOf } from '../../../base/errors.js';
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

/** What the worker answers a page: that it stands in line or its browser lets it not, or what is wrong with its script. */
export type FromWorker = string | undefined;

/**
 * Puts the worker of all tabs in the line for the model's lock; resolves once it stands there, or it is known that it can't: tabs
 * are in line. Returns what is wrong with the worker's script, if anything.
 */
export async function putInLine(start: (name: string) => SharedWorker, asked: ForWorker): Promise<FromWorker> {
  try {
    const worker = start(asked.key);
    const said = new Promise<FromWorker>((resolve) => {
      worker.onerror = () => resolve("its script can't be loaded");
      worker.port.onmessage = ({ data }: MessageEvent<FromWorker>) => resolve(data);
      worker.port.postMessage(asked);
    });
    return await inTime(said, START_MS);
  } catch (error) {
    return messageOf(error); // of another origin, not allowed here, silent, or options that can't be sent
  }
}

/** The worker's side. */
export class WorkerLine {
  #standing: Promise<FromWorker> | undefined;

  /** @param open loads the model of the tab that asks */
  constructor(
    private readonly gpu: Pick<GPU, 'requestAdapter'> | undefined,
    private readonly world: (asked: ForWorker) => ShareWorld,
  ) {}

  /** Resolves once it stands in line, or can't. */
  stand(asked: ForWorker): Promise<FromWorker> {
    return (this.#standing ??= this.#stand(asked));
  }

  async #stand(asked: ForWorker): Promise<FromWorker> {
    const { key } = asked;
    if (!key.endsWith(` ${VERSION}`)) return `it is of splitkv ${VERSION}, the page of ${key.split(' ').at(-1)}`;
    if (!(await this.gpu?.requestAdapter())) return undefined;
    const world = this.world(asked);
    const turn = async (): Promise<void> => new ShareHost(key, world).run();
    void Promise.resolve(world.locks.request(key, turn))
      .catch(() => {}) // told to all, or refused to tabs as well
      .finally(() => (this.#standing = undefined));
    await world.locks.query(); // behind the request
    return undefined;
  }
}
