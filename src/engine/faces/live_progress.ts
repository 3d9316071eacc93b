import type { LoadProgress } from '../contracts/api.js';

const REPORT_MS = 100;

/** What is told before there is anything. */
export const NO_PROGRESS = {
  loadedBytes: 0,
  totalBytes: 0,
  tensorsLoaded: 0,
  tensorsTotal: 0,
  kernelsCompiled: 0,
  kernelsTotal: 0,
};

/** Progress that counts bytes as they arrive over the network, ahead of the tensors that are made of them. */
export class LiveProgress {
  #last: LoadProgress | undefined;
  /** Of the files before the weights. */
  #first = 0;
  #underway = 0;
  #shown = 0;
  #at = -Infinity;

  constructor(
    readonly report: (progress: LoadProgress) => void,
    readonly now: () => number = () => performance.now(),
  ) {}

  /** As far as tensors have been read; before the first, what they will come to. */
  get last(): LoadProgress | undefined {
    return this.#last;
  }

  /** What is read from now on are weights. */
  begin(totalBytes: number, tensorsTotal: number): void {
    this.#last = { ...NO_PROGRESS, phase: 'weights', totalBytes, tensorsTotal };
  }

  /** As of `HttpOptions.onBytes`. */
  arrived(bytes: number): void {
    this.#underway += bytes;
    if (bytes <= 0) return;
    if (!this.#last) this.#first += bytes;
    if (this.now() - this.#at < REPORT_MS) return;
    if (this.#last) return this.#tell(this.#last);
    this.#at = this.now();
    this.report({ ...NO_PROGRESS, phase: 'config', loadedBytes: this.#first });
  }

  /** Tensors were read. */
  used(progress: LoadProgress): void {
    if (progress.loadedBytes < (this.#last?.loadedBytes ?? 0)) this.#shown = 0; // others begin, of a prefill worker
    this.#last = progress;
    this.#tell(progress);
  }

  #tell(progress: LoadProgress): void {
    this.#at = this.now();
    const { loadedBytes, totalBytes } = progress;
    this.#shown = Math.min(totalBytes, Math.max(this.#shown, loadedBytes + Math.max(0, this.#underway)));
    this.report({ ...progress, loadedBytes: this.#shown });
  }
}
