import type { LoadProgress } from './api.js';

const REPORT_MS = 100;

/** Progress that counts bytes as they arrive over the network, ahead of the tensors that are made of them. */
export class LiveProgress {
  #last: LoadProgress | undefined;
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
    this.#last = {
      phase: 'weights',
      loadedBytes: 0,
      totalBytes,
      tensorsLoaded: 0,
      tensorsTotal,
      kernelsCompiled: 0,
      kernelsTotal: 0,
    };
  }

  /** As of `HttpOptions.onBytes`. */
  arrived(bytes: number): void {
    this.#underway += bytes;
    if (this.#last && bytes > 0 && this.now() - this.#at >= REPORT_MS) this.#tell(this.#last);
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
