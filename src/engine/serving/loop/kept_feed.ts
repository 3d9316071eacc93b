import type { HandedKv } from '../../contracts/prefill_worker.js';
import type { KeptBeginning } from '../kept_prefixes.js';

/** Beginnings that wait on the host for room on the ranks. */
const MOST_FOUND = 4;

/** Looks for what is kept of requests' beginnings, one after the other, and holds it until the ranks take it over. */
export class KeptFeed {
  /** By request. */
  readonly #found = new Map<string, HandedKv>();
  readonly #waiting: (() => Promise<void>)[] = [];
  readonly #underWay = new Set<Promise<void>>();
  #looking = false;

  /**
   * Looks when those before are looked for, and a few at most wait for the ranks.
   * @param tell is told what was found, if anything, and says whether it is still wanted
   */
  look(
    id: string,
    find: () => Promise<KeptBeginning | undefined>,
    tell: (found: KeptBeginning | undefined) => boolean,
  ): void {
    this.#found.delete(id); // of ranks that are gone
    this.#waiting.push(async () => {
      const found = await find().catch((): undefined => {}); // it is computed
      if (tell(found) && found) this.#found.set(id, found.kv);
    });
    this.#next();
  }

  /** What the ranks are to take over now, if anything; it isn't held any more. */
  take(id: string): HandedKv | undefined {
    const found = this.#found.get(id);
    if (this.#found.delete(id)) this.#next();
    return found;
  }

  /** Work that nobody waits for, until `settled`. */
  run(work: Promise<void>): void {
    const ended = work.catch(() => {}).finally(() => this.#underWay.delete(ended));
    this.#underWay.add(ended);
  }

  /** Of ranks that are lost: nothing is looked for or held any more. */
  async clear(): Promise<void> {
    this.#waiting.length = 0;
    await this.settled(); // who is looked for just now finds something yet
    this.#found.clear();
  }

  /** Until nothing is under way. */
  async settled(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.all(this.#underWay);
  }

  #next(): void {
    if (this.#found.size >= MOST_FOUND || this.#looking) return;
    const next = this.#waiting.shift();
    if (!next) return;
    this.#looking = true;
    this.run(
      next().finally(() => {
        this.#looking = false;
        this.#next();
      }),
    );
  }
}
