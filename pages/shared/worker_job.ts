import { SplitkvError, type ErrorCode } from '../../src/base/errors.js';

/** What a worker that does one job tells: how far it is, then what came of it. */
export type JobReport<Result> =
  | { readonly kind: 'progress'; readonly line: string }
  | { readonly kind: 'done'; readonly result: Result }
  | { readonly kind: 'failed'; readonly code: ErrorCode; readonly message: string };

/**
 * Gives a worker its job and waits for what comes of it; the worker ends with it.
 * @throws SplitkvError what the job threw; `aborted` when the signal fires: the worker ends at once
 */
export function runJob<Request, Result>(
  worker: Worker,
  request: Request,
  signal: AbortSignal,
  onProgress: (line: string) => void = () => {},
): Promise<Result> {
  return new Promise<Result>((resolve, reject) => {
    const end = (): void => reject(new SplitkvError('aborted', 'stopped'));
    signal.addEventListener('abort', end, { once: true });
    worker.onmessage = ({ data }) => {
      const report = data as JobReport<Result>;
      if (report.kind === 'progress') onProgress(report.line);
      else if (report.kind === 'done') resolve(report.result);
      else reject(new SplitkvError(report.code, report.message));
    };
    worker.onerror = ({ message }) => reject(new SplitkvError('internal', message || "the worker can't be started"));
    worker.postMessage(request);
  }).finally(() => worker.terminate());
}

/** In the worker: does the job that the page sends. */
export function serveJob<Request, Result>(
  job: (request: Request, onProgress: (line: string) => void) => Result | Promise<Result>,
): void {
  const scope = globalThis as unknown as Worker;
  const tell = (report: JobReport<Result>): void => scope.postMessage(report);
  scope.onmessage = ({ data }) => {
    const run = async (): Promise<void> => {
      try {
        tell({ kind: 'done', result: await job(data as Request, (line) => tell({ kind: 'progress', line })) });
      } catch (error) {
        const code = error instanceof SplitkvError ? error.code : 'internal';
        tell({ kind: 'failed', code, message: error instanceof Error ? error.message : String(error) });
      }
    };
    void run();
  };
}
